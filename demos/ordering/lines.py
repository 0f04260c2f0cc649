"""What the clerk says without being asked."""

from voice_agent import Lines

lines = Lines(
    greeting={"zh": "您好，想喝点什么？", "en": "Hello, what would you like to drink?"},
    unclear={"zh": "不好意思，我没听清，请再说一遍。", "en": "Sorry, I did not catch that. Could you say it again?"},
    still_there={"zh": "还需要别的吗？", "en": "Would you like anything else?"},
    goodbye={"zh": "再见，欢迎再来。", "en": "Goodbye, see you next time."},
)
