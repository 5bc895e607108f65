/** How servers say that a request is longer than their model's context: fewer pixels, and so fewer tokens, may fit. */

interface OverflowPattern {
  readonly server: string;
  /** Where it was read. */
  readonly source: string;
  readonly words: RegExp;
}

const sayings: readonly OverflowPattern[] = [
  {
    server:
      'OpenAI; vLLM ("..., however you requested ..."); SGLang ("Requested token count exceeds the model\'s ..."); Mistral',
    source: 'vllm-project/vllm#20409; sgl-project/sglang, tokenizer_manager.py; langchain-ai/langchain#11001',
    words: /maximum context length/i,
  },
  {
    server: 'vLLM, for a prompt that is longer by itself ("The decoder prompt (length 5180) is longer than ...")',
    source: 'vllm-project/vllm, v1/engine/processor.py',
    words: /maximum model length/i,
  },
  {
    server: "vLLM (\"'max_tokens' or 'max_completion_tokens' is too large\")",
    source: 'vllm-project/vllm, entrypoints/openai/serving_engine.py',
    words: /max_(?:completion_)?tokens'? is too large/i,
  },
  {
    server: 'vLLM, where the prompt leaves less than nothing for the reply ("max_tokens must be at least 1, got -186")',
    source: 'vllm-project/vllm#4667',
    words: /tokens must be at least 1, got -/i,
  },
  {
    server: 'OpenAI, by the code of its error, and its newer wording',
    source: 'bytedance/deer-flow#310; BerriAI/litellm, tests of its exception mapping',
    words: /context_length_exceeded|input tokens exceed the configured limit/i,
  },
  {
    server: 'SGLang ("The input (5180 tokens) is longer than ..."), and Together, which serves with it',
    source: 'QwenLM/Qwen3#1321',
    words: /longer than the model's context length/i,
  },
  {
    server: 'SGLang ("Input length (5180 tokens) exceeds the maximum allowed length (4096 tokens)")',
    source: 'sgl-project/sglang, managers/utils.py',
    words: /exceeds the maximum allowed (?:input )?length/i,
  },
  {
    server: 'llama.cpp, by the type of its error or its wording, with status 400 or, before September 2025, 500',
    source: 'ggml-org/llama.cpp#15780',
    words: /exceed_context_size_error|exceeds the available context size/i,
  },
  {
    server: 'llama-cpp-python ("Requested tokens (2285) exceed context window of 2048")',
    source: 'abetlen/llama-cpp-python#416',
    words: /exceed context window of/i,
  },
  {
    server: 'Gemini behind its OpenAI-compatible address',
    source: 'google-gemini/gemini-cli#4692',
    words: /exceeds the maximum number of tokens allowed/i,
  },
];

/** Statuses that come with these words; some servers, and proxies before them, make a 500 of what is the request's fault. */
const statuses: ReadonlySet<number> = new Set([400, 413, 500]);

/** Whether an error says that the request is too long; `words` are its code, type and message. A 413 says so by itself. */
export function isOverflow(status: number, words: string): boolean {
  return status === 413 || (statuses.has(status) && sayings.some((saying) => saying.words.test(words)));
}
