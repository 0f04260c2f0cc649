"""English texts for the teacher: what an ordering agent says, and sentences that cover the sounds of English."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import yaml

from voice_agent.tea.numbers import DIGITS
from voice_agent.tea.numbers import english as number

GENERAL = """
The judge threw a bright yellow vase at the thick oak door.
Six thousand voices sang beneath the frozen bridge.
Should we measure the rough blue cloth or choose another shape?
A small boy pushed the heavy cart up the muddy hill.
She usually watches the evening news with her older brother.
The weather this weekend looks sunny but rather windy.
My uncle grows carrots, onions, and garlic behind the house.
Please put the books back on the shelf when you leave.
He caught the first train and slept most of the way.
Fresh bread smells wonderful early in the morning.
They argued about the treasure map for three full hours.
The museum closes at six, so we should hurry.
Her voice was calm, though her hands were shaking.
A pair of geese flew low over the quiet lake.
Which path leads down to the beach?
We joined the choir because we enjoy singing together.
The doctor told him to rest and drink warm water.
Nobody noticed the tiny crack in the window.
The shop around the corner sells shoes and leather bags.
I thought the movie was good, but the ending felt rushed.
Jack borrowed a red jacket from his cousin George.
Every Thursday the gym opens before sunrise.
The chef chopped cheese, cherries, and chocolate.
It's a pleasure to finally meet you in person.
Bring an umbrella, because rain is likely after lunch.
The queen quickly questioned the quiet guests.
Both of them breathe through the mouth while they run.
A thin layer of ice covered the pond.
We could hear thunder far beyond the mountains.
The pilot adjusted the engine and checked the fuel.
Paul bought a small boat and painted it orange.
Look out for the dog at number forty one.
The oil paint will need a full day to dry.
Zebras and lions rarely share the same water.
His theory about the moon is hard to prove.
The garage down the road fixes old machines.
Would you rather fly or take the ferry?
She wore a beige coat and a purple scarf.
The teacher gave us a short but tricky test.
Vivian visited seven villages in the valley.
Do you know how far the station is from here?
The old clock on the wall stopped at noon.
Few people knew the true story of the island.
Our neighbors are planning a huge party.
The river bends sharply near the wooden mill.
He laughed so loudly that the baby woke up.
We ought to change the tires before the trip.
A gentle breeze moved the curtains.
The engineer drew a careful plan of the tower.
Children love to splash in shallow pools.
I would like to cook something simple tonight.
The bird built its nest from straw and feathers.
Their flight was delayed by thick fog.
You must have left your keys at the office.
The crowd cheered as the runners passed.
Sugar dissolves much faster in hot water.
Joy and sorrow often live under the same roof.
The guide showed us a narrow path through the woods.
Mix the flour and butter, then add a pinch of salt.
The phone rang twice and then went silent.
Cotton shirts are cooler than wool ones.
A loud noise came from the basement.
This puzzle is harder than it looks.
The farmer's daughter raised goats and sheep.
The thief hid the diamond in an empty jar.
We shared a table with two friendly strangers.
The library has a room for younger readers.
What a lovely garden you have!
The train to the airport leaves from platform nine.
She sketched the harbor with a soft pencil.
You can rely on him, he's always on time.
The movers wrapped the mirror in thick paper.
Winter arrived early in the northern towns.
How much does the blue one cost?
He put his foot in a puddle and sighed.
The usual route is closed, so take the bridge.
The law changed just a year ago.
Their daughter is allergic to peanuts.
He's been working there since April.
A fox crossed the field and vanished.
The soup needs a little more pepper.
They live above a noisy coffee house.
The boy's toys were scattered over the floor.
We watched the clouds drift past the tower.
I'm sure you'll find it sooner or later.
Nothing beats a good night's sleep.
The judge agreed to hear the case in July.
Push the green button, then wait for the beep.
This bus doesn't stop near the college.
The waves pulled the little raft away from shore.
She earned her first dollar selling lemonade.
The smooth stone felt cool in his palm.
The village bakery is famous for its plum cake.
Put both hands on the wheel and look ahead.
A cloud of dust rose behind the truck.
They found the missing puppy under the porch.
The author reads a chapter aloud each evening.
My knee hurts when I climb the stairs.
That joke was old when my father was young.
You should choose whichever you enjoy more.
The nurse poured fresh water into a clear glass.
Those boots are too tight around the ankle.
Go straight, turn left, and cross the square.
The vision of the artist was bold and strange.
He measured the board once and cut it twice.
We saw an owl sitting on the church roof.
Rub your hands together to keep them warm.
Theo thanked them for the thoughtful gift.
Yes, we took the usual shortcut through the park.
The choice between pleasure and duty is an old one.
A casual visitor would miss the hidden door.
The young lawyer wrote a long letter.
It rained all day, so the picnic was canceled.
The basketball bounced off the rim.
They chose a round table near the fire.
The cook would not touch the shrimp.
Good food and good company make a good evening.
Could you move your car, please?
The boat rocked softly in the harbor.
Our hotel is about an hour from the airport.
Our tour ends where the river meets the sea.
We hardly ever eat out on weekdays.
The yellow taxi was parked outside the theater.
Sheila washed the dishes while Josh dried them.
The dragon in the story guards a golden egg.
Avoid the highway in the rush hour.
The council approved the new playground.
The lamp in the hall is broken again.
He drew a large circle in the sand.
The jury's verdict surprised the whole town.
Thirty three thirsty thieves thought they thrilled the throne.
Pure air and clear skies made the hike a joy.
An ugly rumor spread through the office.
I owe you an apology and a cup of coffee.
The gardener pulled the weeds one by one.
Eight gray elephants stood in the shade.
We'll know the result within a week.
She pushed open the gate and looked around.
The room was full of smoke and laughter.
He would always sit in the same chair.
The singer's voice filled the great hall.
A tall ship sailed past the lighthouse.
The machine makes a strange buzzing sound.
His shirt was torn at the elbow.
Let's meet in front of the bank at noon.
They argued, then shook hands and smiled.
The price of oil fell again last month.
The sheriff found a valuable watch.
You were right about the weather.
The cat curled up on the warm hood.
Nurse Ruth served the third course first.
She teaches math and music at a public school.
The kitchen smells of ginger and lime.
The brave knight fought in the final battle.
I would choose the cheaper shoes.
Please lower your voice, the baby is asleep.
The child traced the letters with her finger.
The view from the roof is amazing.
They used to own a vineyard in the south.
He enjoys foreign films and loud music.
""".strip().split("\n")

SMALL_TALK = """
Hello! Welcome to our tea shop. What would you like today?
Hi there, what can I get for you?
Good morning! What would you like to drink?
Good afternoon, are you ready to order?
Good evening. How can I help you?
Welcome back! The usual?
Thank you, have a nice day!
Thanks for coming, see you next time.
You're welcome.
No problem at all.
Of course.
Sure.
Okay, got it.
All right.
Goodbye!
Bye, enjoy your drink.
Take your time.
I'm here when you are ready.
I only take orders for drinks here, sorry.
Sorry, I can't help with that. I can only take drink orders.
I don't know about the weather, but I can get you a cold drink.
I'm a voice assistant, and I take drink orders.
Sorry, I didn't catch that. Could you say it again?
Sorry, could you repeat that?
I'm not sure I understood. Which drink did you mean?
Which one do you mean?
How many cups would you like?
How many do you want? That sounds like a lot.
Your cart is empty.
There is nothing in your order yet.
Would you like anything else?
Anything else?
Is that all?
Is that right?
Shall I place the order?
Should I place it now?
Would you like to place the order?
Hot or with ice?
What size would you like?
How much sugar would you like?
How much ice would you like?
Would you like any toppings?
We don't have that, sorry.
Sorry, that is not on our menu.
That one is sold out today, sorry.
I'm afraid we don't sell food.
I've removed it.
I've removed everything.
Okay, I have cleared your order.
Okay, I changed it.
Done, it's updated.
No changes were made.
Nothing was changed.
There's no second line in your order.
You only have one drink in your order.
Our most popular drinks are pearl milk tea and mango pomelo sago.
Our drinks come in small, medium, and large.
You can choose regular ice, less ice, light ice, no ice, or hot.
The large size costs three yuan more.
The small size is two yuan less.
That drink only comes hot.
That drink only comes with regular ice.
It can't be made hot, sorry.
Your order is placed. Thank you!
It will be ready in a few minutes.
Please wait a moment.
One moment, please.
Let me check.
I'm sorry about that.
My mistake.
No worries, let's start over.
You're very kind, thank you.
I'm doing well, thanks. What would you like to drink?
Yes, we have that.
Yes, it is.
No, it isn't.
It's sweet and creamy.
It's fresh and a little sour.
It has caffeine.
It contains milk.
Milk foam is a salty cream on top.
Pearls are chewy balls made of tapioca.
We take cash and cards at the counter.
Please pick it up at the counter.
Do you want it with less sugar?
I can do that.
That's fine.
""".strip().split("\n")


class Ordering:
    """Random replies of an ordering agent over the whole menu."""

    def __init__(self, menu: dict[str, Any], rng: random.Random) -> None:
        self.rng = rng
        options = menu["options"]
        self.sizes, self.ices, self.sugars = ([o["en"] for o in options[k]] for k in ("size", "ice", "sugar"))
        self.toppings = [t["en"] for t in menu["toppings"]]
        ascii_aliases = [a for d in menu["drinks"] for a in d.get("aliases", []) if a.isascii()]
        self.drinks = [d["en"] for d in menu["drinks"]] + ascii_aliases
        self._queues: dict[int, list[str]] = {}

    def pick(self, pool: list[str]) -> str:
        """Every item of a pool once before any comes again, so that a prefix of the texts is balanced."""
        queue = self._queues.setdefault(id(pool), [])
        if not queue:
            queue.extend(self.rng.sample(pool, len(pool)))
        return queue.pop()

    def options(self) -> str:
        makers = [
            lambda: self.pick(self.ices),
            lambda: self.pick(self.sugars),
            lambda: f"{self.pick(self.ices)} and {self.pick(self.sugars)}",
            lambda: f"{self.pick(self.ices)}, {self.pick(self.sugars)}",
            lambda: self.pick(self.toppings),
            lambda: f"{self.pick(self.ices)} and {self.pick(self.toppings)}",
        ]
        return self.rng.choice(makers)()

    def item(self) -> str:
        count = self.rng.choice([1, 1, 1, 1, 2, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12])
        size = self.pick(self.sizes) + " " if self.rng.random() < 0.45 else ""
        drink = self.pick(self.drinks)
        form = self.rng.random()
        if form < 0.2:
            drink = f"{'cup' if count == 1 else 'cups'} of {drink}"
        elif form < 0.6 and count > 1:
            drink += "s"
        if self.rng.random() < 0.6:
            options = self.options()
            return f"{number(count)} {size}{drink}{',' if options.startswith('hot') else ' with'} {options}"
        return f"{number(count)} {size}{drink}"

    def price(self) -> str:
        r = self.rng
        n = r.choices([r.randint(1, 40), r.randint(10, 99), r.randint(100, 999)], [6, 3, 1])[0]
        return f"{number(n)} yuan"

    def reply(self) -> str:
        r, pick, item, price = self.rng, self.pick, self.item, self.price
        one: list[Callable[[], str]] = [
            lambda: f"{r.choice(['Okay', 'Sure', 'Got it', 'All right'])}, {item()}, that's {price()}.",
            lambda: f"{item()}, {price()}. Anything else?",
            lambda: f"So that's {item()}, and {item()}. {price()} in total.",
            lambda: f"You have {item()}, {item()}, and {item()}.",
            lambda: f"The total is {price()}.",
            lambda: f"Your order number is {' '.join(r.choices(DIGITS['en'], k=r.choice([2, 3])))}.",
            lambda: f"Order {number(r.randint(1, 99))} is placed. That's {price()}, thank you.",
            lambda: f"The {pick(self.drinks)} is {price()}.",
            lambda: f"{pick(self.toppings)} cost {price()} extra.",
            lambda: f"Sorry, {pick(self.drinks)} is sold out today.",
            lambda: f"Sorry, we are out of {pick(self.toppings)}.",
            lambda: f"Sorry, we don't have that. How about {pick(self.drinks)}?",
            lambda: f"Okay, I changed it to {pick(self.sugars)}, now it's {price()}.",
            lambda: f"Okay, {self.options()} instead.",
            lambda: f"I removed the {pick(self.drinks)}, the total is now {price()}.",
            lambda: f"Did you mean {pick(self.drinks)} or {pick(self.drinks)}?",
            lambda: f"We have {pick(self.drinks)}, {pick(self.drinks)}, and {pick(self.drinks)}.",
            lambda: f"Would you like your {pick(self.drinks)} {pick(self.sizes)} or {pick(self.sizes)}?",
            lambda: f"I added {pick(self.toppings)} to the {pick(self.drinks)}, {price()} more.",
            lambda: f"{number(r.randint(100, 2000))} yuan altogether. Is that right?",
        ]
        text = r.choices(one, [3] * 4 + [2] * 4 + [1] * (len(one) - 8))[0]()
        return ". ".join(part[0].upper() + part[1:] for part in text.split(". "))


def texts(menu_path: Path, count: int, seed: int) -> list[str]:
    """`count` different texts, shuffled so that any prefix is a balanced set."""
    rng = random.Random(seed)
    ordering = Ordering(yaml.safe_load(menu_path.read_text(encoding="utf-8")), rng)
    fixed = [*GENERAL, *SMALL_TALK]
    chosen = dict.fromkeys(fixed)
    while len(chosen) < count:
        chosen.setdefault(ordering.reply())
    shuffled = list(chosen)
    rng.shuffle(shuffled)
    return shuffled[:count]


def replies(vocabulary_path: Path, count: int, seed: int, pool: int = 2500) -> list[str]:
    """`count` replies of the thinker's own dialogues, chosen for new pairs of neighbouring words, the richest first."""
    from dialogues import make

    from voice_agent.tea.tokenizer import Vocabulary

    rng = random.Random(seed)
    vocabulary = Vocabulary.load(vocabulary_path)
    candidates: dict[str, list[tuple[str, str]]] = {}
    while len(candidates) < pool:
        for sample in make.dialogue(rng, "en", vocabulary):
            words = ["", *sample.text.lower().split(), ""]
            if len(words) <= 18:
                candidates[sample.text] = list(pairwise(words))
    chosen: list[str] = []
    seen: Counter[tuple[str, str]] = Counter()
    while len(chosen) < count:
        best = max(candidates, key=lambda text: sum(0.2 ** seen[p] for p in candidates[text]) / len(candidates[text]))
        seen.update(candidates.pop(best))
        chosen.append(best)
    return chosen


def reply_words(vocabulary_path: Path) -> list[str]:
    """The English words that the thinker can write."""
    from voice_agent.tea.tokenizer import Vocabulary

    vocabulary = Vocabulary.load(vocabulary_path)
    return sorted({t for i in vocabulary.reply["en"] if (t := vocabulary.tokens[i])[0].isalpha()})


def salads(words: list[str], count: int, seed: int) -> list[str]:
    """Words in random order, every word once before any comes again: a word's sounds beside many others."""
    rng = random.Random(seed)
    queue: list[str] = []
    made: list[str] = []
    for _ in range(count):
        picked: list[str] = []
        while len(picked) < 8:
            if not queue:
                queue = rng.sample(words, len(words))
            picked.append(queue.pop())
        cut = rng.randint(3, 5)
        text = f"{' '.join(picked[:cut])}, {' '.join(picked[cut:])}{rng.choice('...?')}"
        made.append(text[0].upper() + text[1:])
    return made


def interleaved(first: list[str], second: list[str]) -> list[str]:
    """Two of `first`, one of `second`, and so on to the end of both."""
    mixed: list[str] = []
    a, b = iter(first), iter(second)
    while batch := [*islice(a, 2), *islice(b, 1)]:
        mixed += batch
    return mixed
