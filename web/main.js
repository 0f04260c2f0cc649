import { Page } from "./app.js";
import { RealtimeCall } from "./call.js";

const page = new Page((handlers) => new RealtimeCall(handlers));
page.loadAgent();
