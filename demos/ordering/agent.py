"""A clerk that takes drink orders by voice: `python -m demos.ordering.agent`."""

from voice_agent import Agent, serve

from .cart import Cart
from .lines import lines
from .menu import default_menu
from .tools import add, change, clear, look_up, place, read_back, remove, replace

instructions = "You take orders at a drink shop. Keep the cart right; answer briefly, in the caller's language."
tools = (add, change, replace, remove, clear, read_back, place, look_up)
menu = default_menu()
info = {"menu": menu.to_json()}
agent = Agent(instructions, tools, name="ordering", state=Cart, info=info, vocabulary=menu.vocabulary(), lines=lines)
if __name__ == "__main__":
    serve(agent)
