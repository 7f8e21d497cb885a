import type { ProviderEntry } from '../protocol/enclave-api.ts'

/**
 * The providers of a production enclave, with their endpoints for OpenAI-compatible chat and for
 * the other dialects. Recheck the endpoints in each provider's API reference, under "OpenAI
 * compatibility". The table is attested twice: in the measured code, and in the boot configuration
 * that the attestation document names. A call goes to the first entry with a matching pattern, so
 * the order matters:
 *
 * 1. Bare ids (`gpt-…`, `claude-…`) go to the maker of the model. Patterns do not overlap.
 * 2. Ids of the form `vendor/model` go to a host. Groq's and Together's ids are listed by name or
 *    by their spelling (Together writes `meta-llama/Llama-…`, OpenRouter `meta-llama/llama-…`). An
 *    id that several hosts serve (`openai/gpt-oss-120b`) goes to Groq. Groq stands before Mistral
 *    because Groq serves its own `mistral-saba-…`.
 * 3. OpenRouter takes the other ids of the vendors that it lists.
 */
export const BUILT_IN_PROVIDERS: readonly ProviderEntry[] = [
  {
    name: 'openai',
    origin: 'https://api.openai.com',
    path: '/v1/chat/completions',
    endpoints: { responses: { path: '/v1/responses' } },
    models: [
      'gpt-*',
      'chatgpt-*',
      'o1',
      'o1-*',
      'o3',
      'o3-*',
      'o4-*',
      'ft:gpt-*',
      'ft:o1*',
      'ft:o3*',
      'ft:o4*',
    ],
  },
  {
    name: 'anthropic',
    origin: 'https://api.anthropic.com',
    path: '/v1/chat/completions',
    endpoints: { messages: { path: '/v1/messages', credential: 'x-api-key' } },
    models: ['claude-*'],
  },
  {
    name: 'google',
    origin: 'https://generativelanguage.googleapis.com',
    path: '/v1beta/openai/chat/completions',
    models: ['gemini-*', 'models/gemini-*', 'gemma-*', 'models/gemma-*', 'learnlm-*'],
  },
  {
    name: 'deepseek',
    origin: 'https://api.deepseek.com',
    path: '/chat/completions',
    endpoints: { messages: { path: '/anthropic/v1/messages', credential: 'x-api-key' } },
    models: ['deepseek-chat*', 'deepseek-reasoner*', 'deepseek-v*'],
  },
  {
    name: 'xai',
    origin: 'https://api.x.ai',
    path: '/v1/chat/completions',
    endpoints: { responses: { path: '/v1/responses' } },
    models: ['grok-*'],
  },
  {
    name: 'groq',
    origin: 'https://api.groq.com',
    path: '/openai/v1/chat/completions',
    endpoints: { responses: { path: '/openai/v1/responses' } },
    models: [
      'groq/*',
      'llama-3.*',
      'llama3-*',
      'llama-guard-*',
      'gemma2-*',
      'compound-*',
      'allam-*',
      'mistral-saba-*',
      'deepseek-r1-distill-*',
      'meta-llama/llama-4-scout-17b-16e-instruct',
      'meta-llama/llama-4-maverick-17b-128e-instruct',
      'meta-llama/llama-guard-4-12b',
      'openai/gpt-oss-*',
      'qwen/qwen3-32b',
      'moonshotai/kimi-k2-instruct*',
    ],
  },
  {
    name: 'mistral',
    origin: 'https://api.mistral.ai',
    path: '/v1/chat/completions',
    models: [
      'mistral-*',
      'ministral-*',
      'magistral-*',
      'codestral-*',
      'devstral-*',
      'pixtral-*',
      'voxtral-*',
      'open-mistral-*',
      'open-mixtral-*',
      'open-codestral-*',
      'ft:mistral-*',
      'ft:ministral-*',
      'ft:codestral-*',
      'ft:pixtral-*',
      'ft:open-mistral-*',
    ],
  },
  {
    name: 'together',
    origin: 'https://api.together.xyz',
    path: '/v1/chat/completions',
    models: [
      'togethercomputer/*',
      'meta-llama/Llama-*',
      'meta-llama/Meta-Llama-*',
      'Qwen/*',
      'deepseek-ai/*',
      'mistralai/Mi*',
      'moonshotai/Kimi-*',
      'zai-org/*',
      'NousResearch/*',
      'ServiceNow-AI/*',
      'arcee-ai/*',
      'lgai/*',
      'marin-community/*',
    ],
  },
  {
    name: 'openrouter',
    origin: 'https://openrouter.ai',
    path: '/api/v1/chat/completions',
    endpoints: {
      responses: { path: '/api/v1/responses' },
      messages: { path: '/api/v1/messages' },
    },
    models: [
      'openrouter/*',
      'openai/*',
      'anthropic/*',
      'google/*',
      'meta-llama/*',
      'mistralai/*',
      'deepseek/*',
      'x-ai/*',
      'qwen/*',
      'moonshotai/*',
      'z-ai/*',
      'minimax/*',
      'cohere/*',
      'perplexity/*',
      'microsoft/*',
      'nvidia/*',
      'amazon/*',
      'nousresearch/*',
      'ai21/*',
      'baidu/*',
      'tencent/*',
      'bytedance/*',
      'inception/*',
      'liquid/*',
    ],
  },
]
