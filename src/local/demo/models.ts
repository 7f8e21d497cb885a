import { DemoError } from './request.ts'

/** README.md in this folder describes how each model answers. */
export const DEMO_MODELS = [
  'demo/echo',
  'demo/lorem',
  'demo/tools',
  'demo/task',
  'demo/refusal',
] as const

/**
 * Models in the simulated TEE. Both answer as `demo/echo` does. The measured configuration names
 * only the first.
 */
export const TEE_MODELS = ['demo/sealed', 'demo/unsealed'] as const
/** The provider of TEE_MODELS in the enclaves' table (enclave/config.ts). */
export const TEE_PROVIDER = 'demo-attested'

/** `dimensions` is the length of a vector. */
export const DEMO_EMBEDDING_MODEL = {
  id: 'demo/embedding',
  dimensions: 256,
  inputTokensMax: 8_192,
} as const

export const DEMO_IMAGE_MODEL = 'demo/image'

/** Throws OpenAI's error 404 for a model that is not in `known`. */
export function checkModel(id: string, known: readonly string[]): void {
  if (known.includes(id)) return
  const others = `this demonstration serves ${known.join(', ')}`
  const where = { code: 'model_not_found', param: 'model' }
  throw new DemoError(404, `The model \`${id}\` does not exist; ${others}.`, where)
}

export function describeModel(id: string): Readonly<Record<string, unknown>> {
  return { id, object: 'model', created: 0, owned_by: 'demonstration' }
}
