import { DemoError } from './request.ts'

/**
 * Ids of all models of the demo provider. README.md in this folder describes how each model
 * answers.
 */
export const DEMO_MODELS = [
  'demo/echo',
  'demo/lorem',
  'demo/tools',
  'demo/task',
  'demo/refusal',
] as const

/**
 * Ids of the models of the demo provider in a simulated TEE. Both models answer as `demo/echo`
 * does. The measured configuration names only the first model.
 */
export const TEE_MODELS = ['demo/sealed', 'demo/unsealed'] as const
/** The provider of TEE_MODELS in the enclaves' table (enclave/config.ts). */
export const TEE_PROVIDER = 'demo-attested'

/** The model of `POST /v1/embeddings`, the length of its vectors, and its limit of tokens. */
export const DEMO_EMBEDDING_MODEL = {
  id: 'demo/embedding',
  dimensions: 256,
  inputTokensMax: 8_192,
} as const

/** The model of `POST /v1/images/generations` and `/v1/images/edits`. */
export const DEMO_IMAGE_MODEL = 'demo/image'

/** Throws OpenAI's error 404 for a model that is not in `known`. */
export function checkModel(id: string, known: readonly string[]): void {
  if (known.includes(id)) return
  const others = `this demonstration serves ${known.join(', ')}`
  const where = { code: 'model_not_found', param: 'model' }
  throw new DemoError(404, `The model \`${id}\` does not exist; ${others}.`, where)
}

/** Gives one entry of the model list. */
export function describeModel(id: string): Readonly<Record<string, unknown>> {
  return { id, object: 'model', created: 0, owned_by: 'demonstration' }
}
