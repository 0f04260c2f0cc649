"""A clerk that takes drink orders by voice: `python -m demos.ordering.agent`."""

from voice_agent import Agent, Lines, serve

from .cart import Cart
from .menu import default_menu
from .tools import add, change, clear, look_up, place, read_back, remove, replace

instructions = "You take orders at a drink shop. Keep the cart right; answer briefly, in the caller's language."
tools = (add, change, replace, remove, clear, read_back, place, look_up)
menu = default_menu()
lines = Lines(
    greeting={"zh": "您好，想喝点什么？", "en": "Hello, what would you like to drink?"},
    unclear={"zh": "不好意思，我没听清，请再说一遍。", "en": "Sorry, I did not catch that. Could you say it again?"},
    still_there={"zh": "还需要别的吗？", "en": "Would you like anything else?"},
    goodbye={"zh": "再见，欢迎再来。", "en": "Goodbye, see you next time."},
)
info = {"menu": menu.to_json()}
agent = Agent(instructions, tools, name="ordering", state=Cart, info=info, vocabulary=menu.vocabulary(), lines=lines)
if __name__ == "__main__":
    serve(agent)
