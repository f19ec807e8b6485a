"""Parameter counts that others published, one row per preset, and how each of them counted.

An exact count has commas down to the last digit; any other figure is rounded or cut off after its last digit.
"""

from dataclasses import dataclass
from math import prod

from runcast.simulator.models import ModelSpec, active_params, total_params, weights
from runcast.simulator.models.tensors import layer_params

from .closed_form import embeddings

UNITS = {"T": 10**12, "B": 10**9, "M": 10**6}


@dataclass(frozen=True)
class Figure:
    """A published figure: its value, and the worth of its last digit, which is 1 where it is exact."""

    value: float
    last_digit: float

    @classmethod
    def of(cls, text):
        digits, _, unit = text.replace(",", "").partition(" ")
        scale = UNITS[unit] if unit else 1
        return cls(float(digits) * scale, scale * 10.0 ** -len(digits.partition(".")[2]))

    def agrees(self, count):
        """Whether rounding a count, or cutting it off, gives this figure."""
        return -self.last_digit / 2 <= count - self.value < self.last_digit


@dataclass(frozen=True)
class Published:
    """What a source says of a preset, and what it counted: a key of COUNTS each for all and for active parameters."""

    preset: str
    total: str
    source: str
    counted: str = "all"
    active: str = ""
    active_counted: str = "all"


def checkpoint(spec):
    """Elements of every stored tensor but scales, so with MTP layers and what they store again."""
    return sum(map(prod, weights(spec, fp8=False).shapes))


def tower_kinds(spec):
    """The kind of each layer of its towers."""
    return [kind for kind in map(spec.kind, range(spec.n_layers)) if kind.tower]


COUNTS = {
    "all": lambda spec, count: count,
    "without embedding": lambda spec, count: count - spec.vocab_size * spec.hidden_size,
    "without towers": lambda spec, count: count - sum(layer_params(spec, kind) for kind in tower_kinds(spec)),
    "without embedding and head": lambda spec, count: count - embeddings(spec),
    "tied head stored again": lambda spec, count: count + spec.vocab_size * spec.hidden_size,
    "checkpoint with MTP": lambda spec, count: checkpoint(spec),
}


def counted(spec: ModelSpec, row: Published) -> tuple[int, int]:
    """All and active parameters of a model as the source of a row counts them."""
    return (
        COUNTS[row.counted](spec, total_params(spec)),
        COUNTS[row.active_counted](spec, active_params(spec)),
    )


_GPT3 = "arXiv:2005.14165, table D.1"
_CARDS = "NVIDIA-NeMo/Megatron-Bridge, model verification cards"
_MEGATRON = "arXiv:2104.04473, table 1"
_FILES = "safetensors of "
_FOUNDRY = "mosaicml/llm-foundry, benchmarking/README.md at 2,048 tokens"
_META = "transformers 5.24, as it builds the config on the meta device"
_LAYERS, _NO_EMBEDDING = "without embedding and head", "without embedding"
_MTP, _AGAIN = "checkpoint with MTP", "tied head stored again"

PUBLISHED = (
    Published("bamba-9b", "9,780,235,392", _META),
    Published("afm-4.5b", "4,619,189,760", _META),
    Published("bert-base", "109,514,298", _META),
    Published("bert-large", "335,174,458", _META),
    Published("bloom-176b", "176,247,271,424", "bigscience/bloom, model card"),
    Published("dbrx", "131,596,523,520", _FILES + "databricks/dbrx-base; announcement", active="36 B"),
    Published("deepseek-v2", "235,741,434,880", _FILES + "deepseek-ai/DeepSeek-V2; report", active="21 B"),
    Published(
        *("deepseek-v2-lite", "15,706,484,224", _FILES + "deepseek-ai/DeepSeek-V2-Lite; report"),
        active="2.4 B",
        active_counted=_NO_EMBEDDING,
    ),
    Published("deepseek-v3", "671,026,419,200", _FILES + "deepseek-ai/DeepSeek-V3; report", active="37 B"),
    Published("deepseek-v3.1", "671,026,419,200", _FILES + "deepseek-ai/DeepSeek-V3.1; card", active="37 B"),
    Published("deepseek-v3.2", "685.4 B", _FILES + "deepseek-ai/DeepSeek-V3.2; card", _MTP, "37 B", _NO_EMBEDDING),
    Published("deepseek-v4-flash", "284 B", "its model card, by openrouter.ai and ollama.com", active="13 B"),
    Published("deepseek-llm-7b", "6,910,365,696", _META),
    Published("deepseek-r1-distill-qwen-1.5b", "1,777,088,000", _META),
    Published("falcon-7b", "7,217,189,760", _FILES + "tiiuae/falcon-7b", _AGAIN),
    Published("falcon-40b", "41,303,293,952", "tiiuae/falcon-40b, as transformers loads it"),
    Published("falcon-180b", "179,522,565,120", _FILES + "tiiuae/falcon-180B", _AGAIN),
    Published("falcon-h1-0.5b", "521,466,400", _META),
    Published("falcon-h1-34b", "33,642,221,312", _META),
    Published("falcon-mamba-7b", "7,272,665,088", _META),
    Published("flux.1-dev", "11,901,408,320", _FILES + "black-forest-labs/FLUX.1-dev"),
    Published("gemma-2b", "2,506,172,416", _META),
    Published("gemma-7b", "8,537,680,896", _META),
    Published("gemma2-2b", "2,614,341,888", _FILES + "google/gemma-2-2b"),
    Published("gemma2-9b", "9,241,705,984", _FILES + "google/gemma-2-9b"),
    Published("gemma2-27b", "27,227,128,320", _FILES + "google/gemma-2-27b"),
    Published("gemma3-1b", "999,885,952", _META),
    Published("gemma3-4b", "4,300,079,472", _META),
    Published("gemma3-12b", "12,187,325,040", _META),
    Published("gemma3-27b", "27,432,406,640", _FILES + "google/gemma-3-27b-it"),
    Published("glm-4.1v-9b", "10.29 B", _META),
    Published("glm-4.5", "358,337,791,296", _FILES + "zai-org/GLM-4.5; card", _MTP, "32 B", _NO_EMBEDDING),
    Published("glm-4.5-air", "110,468,824,832", _FILES + "zai-org/GLM-4.5-Air; card", _MTP, "12 B", _NO_EMBEDDING),
    Published("glm-4.7-flash", "31,221,488,576", _FILES + "zai-org/GLM-4.7-Flash; card", _MTP, "3 B", _NO_EMBEDDING),
    Published("glm-5", "753,864,139,008", _FILES + "zai-org/GLM-5; card", _MTP, "40 B", _NO_EMBEDDING),
    Published("glm-5.2", "753,329,940,480", _FILES + "zai-org/GLM-5.2", _MTP),
    Published("glm-z1-9b", "9,400,094,720", _FILES + "zai-org/GLM-Z1-9B-0414"),
    Published("gpt-neox-20b", "20,554,567,680", "EleutherAI/gpt-neox-20b, model card"),
    Published("gpt-oss-20b", "20,914,757,184", _FILES + "a BF16 copy; card", "all", "3.61 B", _NO_EMBEDDING),
    Published("gpt-oss-120b", "116,829,156,672", _FILES + "a BF16 copy; card", "all", "5.13 B", _NO_EMBEDDING),
    Published("gpt2", "124,439,808", _FILES + "openai-community/gpt2"),
    Published("gpt2-medium", "354,823,168", _FILES + "openai-community/gpt2-medium"),
    Published("gpt2-large", "774,030,080", _FILES + "openai-community/gpt2-large"),
    Published("gpt2-xl", "1,557,611,200", _FILES + "openai-community/gpt2-xl"),
    Published("gpt3-125m", "125 M", _GPT3),
    Published("gpt3-350m", "356 M", _GPT3),
    Published("gpt3-760m", "760 M", _GPT3),
    Published("gpt3-1.3b", "1.32 B", _GPT3),
    Published("gpt3-2.7b", "2.65 B", _GPT3),
    Published("gpt3-6.7b", "6.66 B", _GPT3),
    Published("gpt3-13b", "12.85 B", _GPT3),
    Published("gpt3-175b", "174.6 B", _GPT3),
    Published("granite-4.0-h-micro", "3,191,396,096", _META),
    Published("granite-4.0-h-tiny", "6,939,037,248", _META + "; card", active="1 B"),
    Published("granite-4.0-h-small", "32,207,337,984", _META + "; card", active="9 B"),
    Published("grok-1", "314 B", "xai-org/grok-1, README.md", _LAYERS),
    Published("jamba-v0.1", "51,570,323,328", _META + "; arXiv:2403.19887", active="12 B"),
    Published("jamba-1.5-large", "398,555,145,696", _META + "; arXiv:2408.12570", active="94 B"),
    Published("kimi-k2", "1,026,408,232,448", _FILES + "moonshotai/Kimi-K2-Base; card", active="32 B"),
    Published("kimi-linear-48b-a3b", "49,122,681,728", _META + "; card", active="3 B"),
    Published("lfm2-350m", "354,483,968", _META),
    Published("lfm2-1.2b", "1,170,340,608", _META),
    Published("lfm2-8b-a1b", "8,339,930,560", _META + "; card", active="1.5 B"),
    Published("llama-7b", "6,738,415,616", _FILES + "huggyllama/llama-7b"),
    Published("llama-13b", "13,015,864,320", _FILES + "huggyllama/llama-13b"),
    Published("llama-30b", "32,528,943,616", _FILES + "huggyllama/llama-30b"),
    Published("llama-65b", "65,285,660,672", _FILES + "huggyllama/llama-65b"),
    Published("llama2-7b", "6,738,415,616", _FILES + "meta-llama/Llama-2-7b-hf"),
    Published("llama2-13b", "13,015,864,320", _FILES + "meta-llama/Llama-2-13b-hf"),
    Published("llama2-70b", "68,976,648,192", _FILES + "meta-llama/Llama-2-70b-hf"),
    Published("llama3-8b", "8,030,261,248", _FILES + "meta-llama/Llama-3.1-8B"),
    Published("llama3-70b", "70,553,706,496", _FILES + "meta-llama/Llama-3.1-70B"),
    Published("llama3-405b", "405,853,388,800", _FILES + "meta-llama/Llama-3.1-405B"),
    Published("llama3.2-1b", "1,235,814,400", _FILES + "meta-llama/Llama-3.2-1B"),
    Published("llama3.2-3b", "3,212,749,824", _FILES + "meta-llama/Llama-3.2-3B"),
    Published("llama4-scout-text", "107,769,861,120", _META + "; name", active="17 B"),
    Published(
        "llama4-scout",
        "108,641,793,536",
        _FILES + "meta-llama/Llama-4-Scout-17B-16E; card",
        active="17 B",
        active_counted="without towers",
    ),
    Published("llava-1.5-7b", "7,063,427,072", _FILES + "llava-hf/llava-1.5-7b-hf"),
    Published("mamba-2.8b", "2,768,345,600", _META),
    Published("mamba2-130m", "128,989,632", _META),
    Published("mamba2-370m", "368,346,624", _META),
    Published("mamba2-780m", "780,161,280", _META),
    Published("mamba2-1.3b", "1,343,757,312", _META),
    Published("mamba2-2.7b", "2,702,599,680", _META),
    Published("megatron-bert-4b", "4 B", "docs.nvidia.com, NeMo Framework, BERT results"),
    Published("megatron-gpt-1.7b", "1.7 B", _MEGATRON),
    Published("megatron-gpt-3.6b", "3.6 B", _MEGATRON),
    Published("megatron-gpt-7.5b", "7.5 B", _MEGATRON),
    Published("megatron-gpt-18.4b", "18.4 B", _MEGATRON),
    Published("megatron-gpt-22b", "22 B", "arXiv:2205.05198, table 3"),
    Published("megatron-gpt-39.1b", "39.1 B", _MEGATRON),
    Published("megatron-gpt-76.1b", "76.1 B", _MEGATRON),
    Published("megatron-gpt-145.6b", "145.6 B", _MEGATRON),
    Published("megatron-gpt-310.1b", "310.1 B", _MEGATRON),
    Published("megatron-gpt-530b", "529.6 B", _MEGATRON),
    Published("megatron-gpt-1t", "1008.0 B", _MEGATRON),
    Published("ministral-3-3b", "3,849,090,048", _META),
    Published("ministral-3-8b", "8,918,026,240", _META),
    Published("ministral-3-14b", "13,945,031,680", _META),
    Published("minitron-4b", "4,190,509,056", _META),
    Published("mistral-7b", "7,248,023,552", _FILES + "mistralai/Mistral-7B-v0.3"),
    Published("mistral-nemo-12b", "12,247,782,400", _META),
    Published("mistral-small-3.1-24b", "24,011,361,280", _FILES + "mistralai/Mistral-Small-3.1-24B-Base-2503"),
    Published("mixtral-8x7b", "46,702,792,704", _FILES + "mistralai/Mixtral-8x7B-v0.1; announcement", active="12.9 B"),
    Published("mixtral-8x22b", "140,630,071,296", _FILES + "mistralai/Mixtral-8x22B-v0.1; announcement", active="39 B"),
    Published("moonlight-16b-a3b", "15.29 B", "arXiv:2502.16982", _LAYERS, "2.24 B", _LAYERS),
    Published("mpt-125m", "125,311,488", _FOUNDRY),
    Published("mpt-350m", "355,985,408", _FOUNDRY),
    Published("mpt-760m", "760,470,528", _FOUNDRY),
    Published("mpt-1b", "1,315,950,592", _FOUNDRY),
    Published("mpt-3b", "2,651,837,440", _FOUNDRY),
    Published("mpt-7b", "6,658,859,008", _FOUNDRY),
    Published("mpt-13b", "12,853,954,560", _FOUNDRY),
    Published("mpt-30b", "29,975,214,080", _FOUNDRY),
    Published("mpt-70b", "64,862,437,376", _FOUNDRY),
    Published("nemotron-3-8b", "8,540,135,424", _META),
    Published("nemotron-3-22b", "21,266,116,608", _META),
    Published("nemotron-4-15b", "12.5 B", "arXiv:2402.16819, section 2", _LAYERS),
    Published("nemotron-4-340b", "331.6 B", "arXiv:2406.11704, section 2.2", _LAYERS),
    Published("nemotron-3-nano", "31,577,940,288", _META + "; report", "all", "3.2 B", _NO_EMBEDDING),
    Published("nemotron-3-super", "120,668,707,840", _META + "; report", active="12 B"),
    Published("nemotron-3-nano-4b", "3,973,556,832", _CARDS),
    Published("nemotron-3-ultra", "560,524,603,904", _CARDS + "; name", _MTP, "55 B", _NO_EMBEDDING),
    Published("nemotron-3.5-lightning", "32,913,266,240", _CARDS + "; report of Nano", _MTP, "3.2 B", _NO_EMBEDDING),
    Published("nemotron-h-4b", "4,489,223,040", _META),
    Published("nemotron-h-8b", "8,100,852,736", _META),
    Published("nemotron-h-47b", "46,791,554,816", _META),
    Published("nemotron-h-56b", "56,324,350,464", _META),
    Published("nemotron-nano-9b-v2", "8,888,227,328", _META),
    Published("nemotron-nano-12b-v2", "12,310,001,152", _META),
    Published("nvidia-mamba2-8b", "8,236,999,680", _META),
    Published("nvidia-mamba2-hybrid-8b", "8,654,517,248", _META),
    Published("olmoe-7b-a1b", "6,919,161,856", _META + "; card", active="1.3 B"),
    Published("phi-3-mini", "3,821,079,552", _META),
    Published("phi-4", "14,659,507,200", _FILES + "microsoft/phi-4"),
    Published("phi-4-mini", "3,836,021,760", _META),
    Published("qwen-image", "20.43 B", "diffusers, as it builds the config on the meta device"),
    Published("qwen2.5-0.5b", "494,032,768", _FILES + "Qwen/Qwen2.5-0.5B"),
    Published("qwen2.5-1.5b", "1,543,714,304", _FILES + "Qwen/Qwen2.5-1.5B"),
    Published("qwen2.5-3b", "3,085,938,688", _FILES + "Qwen/Qwen2.5-3B"),
    Published("qwen2.5-7b", "7,615,616,512", _FILES + "Qwen/Qwen2.5-7B"),
    Published("qwen2.5-14b", "14,770,033,664", _FILES + "Qwen/Qwen2.5-14B"),
    Published("qwen2.5-32b", "32,763,876,352", _FILES + "Qwen/Qwen2.5-32B"),
    Published("qwen2.5-72b", "72,706,203,648", _FILES + "Qwen/Qwen2.5-72B"),
    Published("qwen2.5-vl-3b", "3,754,622,976", _META),
    Published("qwen2.5-vl-7b", "8,292,166,656", _FILES + "Qwen/Qwen2.5-VL-7B-Instruct"),
    Published("qwen2.5-vl-32b", "33,452,718,336", _META),
    Published("qwen2.5-vl-72b", "73,410,777,344", _META),
    Published("qwen3-0.6b", "751,632,384", _FILES + "Qwen/Qwen3-0.6B", _AGAIN),
    Published("qwen3-1.7b", "2,031,739,904", _FILES + "Qwen/Qwen3-1.7B", _AGAIN),
    Published("qwen3-4b", "4,022,468,096", _FILES + "Qwen/Qwen3-4B"),
    Published("qwen3-8b", "8,190,735,360", _FILES + "Qwen/Qwen3-8B"),
    Published("qwen3-14b", "14,768,307,200", _FILES + "Qwen/Qwen3-14B"),
    Published("qwen3-32b", "32,762,123,264", _FILES + "Qwen/Qwen3-32B"),
    Published("qwen3-30b-a3b", "30,532,122,624", _FILES + "Qwen/Qwen3-30B-A3B; card", active="3.3 B"),
    Published("qwen3-235b-a22b", "235,093,634,560", _FILES + "Qwen/Qwen3-235B-A22B; card", active="22 B"),
    Published("qwen3-next-80b-a3b", "79,674,391,296", _META + "; card", active="3 B"),
    # 27,781,427,952 less the vision tower's 460,730,096, which the preset leaves out
    Published("qwen3-vl-4b", "4,437,815,808", _META),
    Published("qwen3-vl-8b", "8,767,123,696", _FILES + "Qwen/Qwen3-VL-8B-Instruct"),
    Published("qwen3-vl-30b-a3b", "31,070,754,032", _META + "; name", active="3 B"),
    Published("qwen3-vl-235b-a22b", "235,670,022,896", _META + "; name", active="22 B"),
    Published("qwen3.5-0.8b", "752,393,024", _META),
    Published("qwen3.5-2b", "1,881,825,088", _META),
    Published("qwen3.5-4b", "4,205,751,296", _META),
    Published("qwen3.5-9b", "8,953,803,264", _META),
    Published("qwen3.5-35b-a3b", "35,505,251,456", _CARDS + ", without vision; name", _MTP, "3 B", _NO_EMBEDDING),
    Published("qwen3.5-397b-a17b", "403 B", _FILES + "Qwen/Qwen3.5-397B-A17B, 403.4 B with vision; name", _MTP, "17 B"),
    Published("qwen3.5-27b", "27,320,697,856", _FILES + "Qwen/Qwen3.5-27B, without its vision tower", _MTP),
    Published("rwkv7-0.1b", "191 M", "arXiv:2503.14456"),
    Published("rwkv7-0.4b", "451 M", "arXiv:2503.14456"),
    Published("rwkv7-1.5b", "1.527 B", "arXiv:2503.14456"),
    Published("rwkv7-2.9b", "2.948 B", "arXiv:2503.14456"),
    Published("sd3.5-large", "8.06 B", "diffusers, as it builds the config on the meta device"),
    Published("smollm2-1.7b", "1,711,376,384", _FILES + "HuggingFaceTB/SmolLM2-1.7B"),
    Published("starcoder-15b", "15,517,456,384", _META),
    Published("starcoder2-3b", "3,030,371,328", _META),
    Published("starcoder2-7b", "7,173,923,840", _META),
    Published("starcoder2-15b", "15,957,889,024", _META),
    Published("t5-11b", "11,307,321,344", _META),
    Published("tinyllama-1.1b", "1,100,048,384", _FILES + "TinyLlama/TinyLlama-1.1B-intermediate-step-1431k-3T"),
    Published("whisper-large-v3", "1,543,490,560", _FILES + "openai/whisper-large-v3"),
)
