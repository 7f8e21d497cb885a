/**
 * Beginnings of models' names; the first match is used. Metrics have the family as a label, because
 * callers choose names and could create any number of series.
 */
const FAMILIES: readonly (readonly [family: string, beginnings: readonly string[]])[] = [
  ['gpt-oss', ['gpt-oss']],
  ['gpt-image', ['gpt-image', 'dall-e']],
  ['gpt', ['gpt', 'chatgpt', 'o1', 'o3', 'o4', 'codex']],
  ['claude', ['claude']],
  ['gemini', ['gemini']],
  ['gemma', ['gemma']],
  [
    'mistral',
    ['mistral', 'mixtral', 'ministral', 'codestral', 'magistral', 'devstral', 'pixtral', 'voxtral'],
  ],
  ['deepseek', ['deepseek']],
  ['grok', ['grok']],
  ['llama', ['llama', 'meta-llama', 'codellama', 'tinyllama']],
  ['qwen', ['qwen', 'qwq', 'qvq']],
  ['phi', ['phi-', 'phi3', 'phi4']],
  ['kimi', ['kimi', 'moonshot']],
  ['glm', ['glm', 'chatglm']],
  ['minimax', ['minimax']],
  ['command', ['command', 'c4ai']],
  ['nemotron', ['nemotron']],
  ['granite', ['granite']],
  ['nova', ['nova-']],
  ['smollm', ['smollm']],
  [
    'embedding',
    ['text-embedding', 'bge-', 'nomic-embed', 'e5-', 'gte-', 'mxbai-embed', 'voyage', 'jina-embed'],
  ],
  ['stable-diffusion', ['stable-diffusion', 'sdxl', 'sd-', 'sd3']],
  ['flux', ['flux']],
]

const OTHER_FAMILY = 'other'

export const MODEL_FAMILIES: readonly string[] = [
  'none',
  ...FAMILIES.map(([family]) => family),
  OTHER_FAMILY,
]

/** Longer names are cut before the comparison. */
const NAME_LENGTH_MAX = 256

/**
 * Returns one of MODEL_FAMILIES, by the name after its last slash: `openai/gpt-5` and `GPT-5` are
 * `gpt`. Returns 'none' for a call without a model. The family shows what the name claims, NOT
 * which model answered.
 */
export function familyOf(model: string | undefined): string {
  if (model === undefined || model === '') return 'none'
  const name = model.slice(0, NAME_LENGTH_MAX).toLowerCase()
  const own = name.slice(name.lastIndexOf('/') + 1)
  const known = FAMILIES.find(([, beginnings]) => beginnings.some((begin) => own.startsWith(begin)))
  return known?.[0] ?? OTHER_FAMILY
}
