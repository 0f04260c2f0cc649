import { Page } from "./app.js";
import { VoiceCall } from "./sdk/src/index.js";

const page = new Page((options) => new VoiceCall(options));
page.loadAgent();
