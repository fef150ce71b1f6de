"""Arithmetic word problems in GSM8K's form: `Question:`, worked steps with `<<16-3=13>>13`, `#### answer`.

Everything is drawn from the seed, so a corpus can be made again from its number alone.
"""

import random

NAMES = (
    "Anna Ben Carla David Emma Felix Grace Henry Ivy Jack Kate Leo Maria Noah Olivia Paul Quinn Rosa Sam Tina Umar "
    "Vera Will Xena Yusuf Zoe Amir Bella Chen Diego Elena Farid Gina Hugo Ines Jonas Lily Mark Nina Omar"
).split()
THINGS = (
    "apples books pencils marbles stickers cookies oranges shells coins stamps flowers cards toys eggs balloons "
    "candies muffins buttons beads crayons peaches pears carrots tickets photos bottles boxes cups"
).split()
CONTAINERS = ("box boxes", "bag bags", "basket baskets", "shelf shelves", "jar jars", "crate crates", "pack packs")
PLACES = "store market school farm library bakery garden park museum office".split()


def number(value) -> str:
    return str(int(value)) if value == int(value) else f"{value:g}"


def step(left, op: str, right) -> tuple:
    """Value and GSM8K's written form of one operation."""
    value = {"+": left + right, "-": left - right, "*": left * right, "/": left / right}[op]
    text = f"{number(left)}{op}{number(right)}"
    return value, f"{text}=<<{text}={number(value)}>>{number(value)}"


def buy_and_give(rng):
    a, b = rng.sample(NAMES, 2)
    thing = rng.choice(THINGS)
    start, more = rng.randint(3, 60), rng.randint(2, 40)
    given = rng.randint(1, start + more - 1)
    total, first = step(start, "+", more)
    left, second = step(total, "-", given)
    verb = rng.choice(("buys", "finds", "gets", "picks"))
    question = (
        f"{a} has {start} {thing}. {a} {verb} {more} more {thing} and then gives {given} {thing} to {b}. "
        f"How many {thing} does {a} have now?"
    )
    return question, [f"{a} has {first} {thing} at first.", f"After giving some to {b}, {a} has {second} {thing}."], left


def containers(rng):
    a = rng.choice(NAMES)
    thing, (one, many) = rng.choice(THINGS), rng.choice(CONTAINERS).split()
    count, each, extra = rng.randint(2, 12), rng.randint(2, 20), rng.randint(1, 30)
    inside, first = step(count, "*", each)
    total, second = step(inside, "+", extra)
    question = (
        f"{a} has {count} {many} with {each} {thing} in each {one}. {a} also has {extra} loose {thing}. "
        f"How many {thing} does {a} have in total?"
    )
    return question, [f"There are {first} {thing} in the {many}.", f"In total there are {second} {thing}."], total


def shopping(rng):
    a = rng.choice(NAMES)
    x, y = rng.sample(THINGS, 2)
    nx, ny, px, py = rng.randint(2, 10), rng.randint(2, 10), rng.randint(2, 12), rng.randint(2, 12)
    cx, first = step(nx, "*", px)
    cy, second = step(ny, "*", py)
    total, third = step(cx, "+", cy)
    lines = [f"The {x} cost ${first}.", f"The {y} cost ${second}.", f"Together they cost ${third}."]
    question = (
        f"{a} buys {nx} {x} for ${px} each and {ny} {y} for ${py} each at the {rng.choice(PLACES)}. "
        f"How much does {a} spend?"
    )
    if rng.random() < 0.5:
        paid = int(total) + rng.randint(1, 40)
        total, fourth = step(paid, "-", total)
        question = question.replace(f"How much does {a} spend?", f"{a} pays with ${paid}. How much change does {a} get?")
        lines.append(f"The change is ${fourth}.")
    return question, lines, total


def wages(rng):
    a = rng.choice(NAMES)
    rate, hours, days = rng.randint(5, 30), rng.randint(2, 9), rng.randint(2, 7)
    daily, first = step(rate, "*", hours)
    total, second = step(daily, "*", days)
    question = (
        f"{a} earns ${rate} an hour and works {hours} hours a day. How much does {a} earn in {days} days?"
    )
    return question, [f"In one day {a} earns ${first}.", f"In {days} days {a} earns ${second}."], total


def sharing(rng):
    a = rng.choice(NAMES)
    thing = rng.choice(THINGS)
    friends, each = rng.randint(2, 10), rng.randint(2, 15)
    eaten = rng.randint(1, 20)
    start = friends * each + eaten
    rest, first = step(start, "-", eaten)
    share, second = step(rest, "/", friends)
    question = (
        f"{a} has {start} {thing}. {a} keeps {eaten} {thing} and shares the rest equally among {friends} friends. "
        f"How many {thing} does each friend get?"
    )
    return question, [f"{a} shares {first} {thing}.", f"Each friend gets {second} {thing}."], share


def times_as_many(rng):
    a, b = rng.sample(NAMES, 2)
    thing = rng.choice(THINGS)
    base, factor = rng.randint(2, 30), rng.randint(2, 6)
    word = {2: "twice", 3: "three times", 4: "four times", 5: "five times", 6: "six times"}[factor]
    more, first = step(base, "*", factor)
    total, second = step(base, "+", more)
    question = f"{a} has {base} {thing}. {b} has {word} as many {thing} as {a}. How many {thing} do they have together?"
    return question, [f"{b} has {first} {thing}.", f"Together they have {second} {thing}."], total


def half_and_more(rng):
    a = rng.choice(NAMES)
    thing, days = rng.choice(THINGS), ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday")
    d1, d2, d3 = sorted(rng.sample(range(5), 3))
    first_day = 2 * rng.randint(2, 40)
    half, first = step(first_day, "/", 2)
    extra = rng.randint(2, 20)
    third, second = step(half, "+", extra)
    two, sum1 = step(first_day, "+", half)
    total, sum2 = step(two, "+", third)
    question = (
        f"{a} sold {first_day} {thing} on {days[d1]}, half as many on {days[d2]}, and {extra} more on {days[d3]} than on "
        f"{days[d2]}. How many {thing} did {a} sell in total?"
    )
    lines = [f"On {days[d2]} {a} sold {first} {thing}.", f"On {days[d3]} {a} sold {second} {thing}."]
    return question, [*lines, f"In two days {a} sold {sum1} {thing}.", f"In total {a} sold {sum2} {thing}."], total


def travel(rng):
    a = rng.choice(NAMES)
    speed, hours = 5 * rng.randint(2, 14), rng.randint(2, 8)
    there, first = step(speed, "*", hours)
    walked = rng.randint(1, 15)
    total, second = step(there, "+", walked)
    question = (
        f"{a} drives for {hours} hours at {speed} miles per hour and then walks {walked} miles. "
        f"How many miles does {a} travel?"
    )
    return question, [f"{a} drives {first} miles.", f"In total {a} travels {second} miles."], total


def plain(rng):
    """One-step drill: the tables that the longer problems rest on."""
    op = rng.choice("+-*/")
    if op == "/":
        right, quotient = rng.randint(2, 12), rng.randint(2, 20)
        left = right * quotient
    elif op == "*":
        left, right = rng.randint(2, 20), rng.randint(2, 12)
    else:
        left, right = rng.randint(1, 200), rng.randint(1, 100)
        left, right = max(left, right), min(left, right)
    value, text = step(left, op, right)
    words = {"+": "plus", "-": "minus", "*": "times", "/": "divided by"}[op]
    return f"What is {left} {words} {right}?", [text], value


TEMPLATES = (buy_and_give, containers, shopping, wages, sharing, times_as_many, half_and_more, travel, plain)


def problem(rng) -> str:
    question, lines, answer = rng.choice(TEMPLATES)(rng)
    worked = "\n".join(lines)
    return f"Question: {question}\nAnswer: {worked}\n#### {number(answer)}"


def documents(count: int, seed: int) -> list:
    """`count` problems; some documents hold several, as a few-shot prompt does."""
    rng = random.Random(seed)
    made, out = 0, []
    while made < count:
        shots = rng.choice((1, 1, 1, 2, 4, 6, 12))
        out.append("\n\n".join(problem(rng) for _ in range(shots)))
        made += shots
    return out
