"""The models of bench/problems/models.toml: their products and their attention, at lengths by one of two distributions.

log: logarithms of lengths drawn evenly. served: as published traces of services sum them up. A prompt is log-normal, a third each with the
median of Azure's conversations (1,020 tokens) and of its code completion (1,500), as Splitwise (ISCA 2024) has them, and with the mean of
Kimi's requests (7,590), as Mooncake (FAST 2025) has it; none of them says how wide it is, and a sigma of 1 is ours. A step of a service is
a prompt or, as often, a step of decoding; of these 65 % have 20 sequences or fewer, Splitwise says of conversations, and an exponential
distribution goes through that point. Models of images, video and sound have the lengths of `tokens`, each as often as the others.
"""
import dataclasses
import math
import pathlib
import tomllib

PROBLEMS = pathlib.Path(__file__).resolve().parent / "problems"
FILE, EXTRAS = PROBLEMS / "models.toml", PROBLEMS / "models_extras.toml"
DISTRIBUTIONS = ("log", "served")
LEAST, MOST = 128, 32768  # of a drawn length of attention; a decode step of a product has fewer rows
TOKENS = 16384  # of a batch of attention, about
SIGMA = 1.0
DIVIDED = 128  # rows a rank from which on the ranks of a team keep a part of the rows each between products: sequence parallel
PROMPTS = (1020, 1500, 7590 / math.exp(SIGMA**2 / 2))  # medians
DECODING = 20 / -math.log(1 - 0.65)  # sequences in the mean


@dataclasses.dataclass
class Model:
    name: str
    source: str
    mask: str
    hidden: int
    heads: int
    key_heads: int
    head_dim: int
    value_dim: int = 0
    intermediate: int = 0
    gated: bool = False
    longest: int = 0
    tokens: list = dataclasses.field(default_factory=list)
    window: int = 0
    local: float = 0.0
    shortest: int = LEAST  # of the lengths that `log` draws
    soft_cap: int = 0
    sinks: bool = False
    products: list = dataclasses.field(default_factory=list)

    def __post_init__(self):
        self.value_dim = self.value_dim or self.head_dim
        self.products = self.products or [
            ["qkv", (self.heads + self.key_heads) * self.head_dim + self.key_heads * self.value_dim, self.hidden],
            ["attention output", self.hidden, self.heads * self.value_dim],
            ["gate and up" if self.gated else "up", self.intermediate * (2 if self.gated else 1), self.hidden],
            ["down", self.hidden, self.intermediate]]

    def length(self, draw, distribution):
        """Of a sequence of its attention."""
        most = min(self.longest, MOST)
        if self.tokens:
            return draw.choice(self.tokens) if distribution == "served" else log_even(draw, min(self.tokens), max(self.tokens))
        return min(most, prompt(draw)) if distribution == "served" else log_even(draw, self.shortest, most)

    def rows(self, draw, distribution):
        """Of a product."""
        if distribution == "served" and not self.tokens and draw.random() < 0.5:
            return max(1, round(draw.expovariate(1 / DECODING)))
        return self.length(draw, distribution) if self.tokens or distribution == "served" else log_even(draw, 1, 16384)

    def words(self, draw, length):
        """Its heads, its mask, of a layer that is local as often as its layers are, and its soft cap or sinks."""
        sizes = f"heads={self.heads} key_heads={self.key_heads} head_dim={self.head_dim} value_dim={self.value_dim}"
        is_local = draw.random() < self.local
        if is_local and self.window < length:
            return f"{sizes} mask=window window_left={self.window - 1} window_right=0" + self.extras()
        return sizes + (f" mask={self.mask}" if self.mask != "none" else "") + self.extras()

    def extras(self):
        return (f" soft_cap=tanh cap={self.soft_cap}" if self.soft_cap else "") + (" sinks=head" if self.sinks else "")


def log_even(draw, least, most):
    return round(least * (most / least) ** draw.random())


def prompt(draw):
    return max(1, round(draw.choice(PROMPTS) * math.exp(draw.gauss(0, SIGMA))))


def read(file=FILE):
    return [Model(**each) for each in tomllib.loads(file.read_text())["model"]]


def with_extras():
    """The models of models_extras.toml, each as its global layers and as its local ones, which see sequences longer than the window."""
    for model in read(EXTRAS):
        yield dataclasses.replace(model, local=0.0)
        yield dataclasses.replace(model, local=1.0, shortest=model.window + 1)


def products(draw, count, distribution, ranks=1):
    """So many of (m, n, k, name), all models as often as each other; those alone that so many ranks can share. For few rows ranks gather nothing, so
    that a team has sums alone."""
    for model in turns(draw, read(), count):
        can = [each for each in model.products if shared(*each) % (8 * ranks) == 0]
        (name, n, k), m = draw.choice(can), model.rows(draw, distribution)
        if ranks > 1 and m <= ranks * (DIVIDED - 1) and not is_sum(name):
            name, n, k = draw.choice([each for each in can if is_sum(each[0])])
        yield m, n, k, f"{model.name} {name}, {distribution}"


def is_sum(name):
    """Whether tensor parallelism divides the product's k, so that its results are parts of sums."""
    return "output" in name or "down" in name


def shared(name, n, k):
    """The size of a product that tensor parallelism divides."""
    return k if is_sum(name) else n


def collectives(draw, count, distribution, ranks):
    """Lines of what the ranks of a team send between products. Decoders are tensor parallel: a sum for few rows, else sequence parallel, a gather before
    a product or a scatter after it. The encoders' and the diffusion models' ranks may share the heads instead, as Ulysses does."""
    for model in turns(draw, read(), count):
        rows = model.rows(draw, distribution)
        own = -(-rows // ranks)
        ops = ["all_reduce"] if own < DIVIDED else ["all_gather", "reduce_scatter"]
        op = draw.choice(ops + (["all_to_all"] if model.tokens and model.heads % ranks == 0 else []))
        size = f"rows={own} heads={model.heads} dim={model.head_dim} dtype=bf16" if op == "all_to_all" else f"rows={rows if op == 'all_reduce' else own} cols={model.hidden} dtype=bf16 ranks=alike"
        yield f"{op} {size} # {model.name}, {distribution}"


def attention(draw, count, distribution, backward=False, table=None):
    """Lines of problems of dense batches, of the models of `table` or of models.toml."""
    for model in turns(draw, table or read(), count):
        length = model.length(draw, distribution)
        yield (f"attention_{'backward' if backward else 'forward'} batch={max(1, TOKENS // length)} queries={length} keys={length} "
               f"{model.words(draw, length)} # {model.name}, {distribution}")


def packed(draw, count, backward=False, table=None):
    """Lines of problems of packed batches of decoders, lengths as they are served."""
    for model in turns(draw, [each for each in table or read() if not each.tokens], count):
        lengths = []
        while not lengths or sum(lengths) < TOKENS // 2:
            lengths.append(min(TOKENS // 2, model.length(draw, "served")))  # a longer prompt is served in parts
        total = sum(lengths)
        yield (f"attention_{'backward' if backward else 'forward'} batch={len(lengths)} queries={total} keys={total} {model.words(draw, max(lengths))} "
               f"layout=packed lengths={','.join(map(str, lengths))} # {model.name}, served")


def paged(draw, count, page_size=16):
    """Lines of steps of a service whose keys lie in pages, lengths as they are served. A step has 4,096 to 8,192 queries: a longer prompt is served
    in parts, and one in two others begins with a cached prefix, a share of it drawn evenly."""
    budget = TOKENS // 2
    for model in turns(draw, [each for each in read() if not each.tokens], count):
        queries, keys = [], []
        while not queries or sum(queries) < budget // 2:
            length = model.length(draw, "served")
            if length > budget:
                end = min(length, budget * draw.randint(1, -(-length // budget)))
                new = (end - 1) % budget + 1
            else:
                end, new = length, length if draw.random() < 0.5 else max(1, round(length * draw.random()))
            queries.append(min(new, budget - sum(queries)))
            keys.append(end)
        yield (f"attention_paged batch={len(queries)} queries={sum(queries)} keys={max(keys)} {model.words(draw, max(keys))} page_size={page_size} "
               f"lengths={','.join(map(str, queries))} key_lengths={','.join(map(str, keys))} # {model.name}, served")


def turns(draw, all_models, count):
    """Models in a random order, each as often as the others or once more."""
    drawn = []
    while len(drawn) < count:
        drawn += draw.sample(all_models, len(all_models))
    return drawn[:count]
