import { DemoError } from './request.ts'

/**
 * Every model id that the demo provider serves. README.md of this folder says what each answers.
 */
export const DEMO_MODELS = [
  'demo/echo',
  'demo/lorem',
  'demo/tools',
  'demo/agent',
  'demo/refusal',
] as const

export type DemoModel = (typeof DEMO_MODELS)[number]

/**
 * The model of `POST /v1/embeddings`: how many numbers its vectors have, and how many tokens it
 * takes.
 */
export const DEMO_EMBEDDING_MODEL = {
  id: 'demo/embedding',
  dimensions: 256,
  inputTokensMax: 8_192,
} as const

/** The model of `POST /v1/images/generations` and `/v1/images/edits`. */
export const DEMO_IMAGE_MODEL = 'demo/image'

/** Gives that id when it is one of `known`, or throws the 404 that OpenAI gives for another one. */
export function findModel<Id extends string>(id: string, known: readonly Id[]): Id {
  const model = known.find((candidate) => candidate === id)
  if (model !== undefined) return model
  const others = `this demonstration serves ${known.join(', ')}`
  const where = { code: 'model_not_found', param: 'model' }
  throw new DemoError(404, `The model \`${id}\` does not exist; ${others}.`, where)
}

/** Gives one entry of the model list. */
export function describeModel(id: string): Readonly<Record<string, unknown>> {
  return { id, object: 'model', created: 0, owned_by: 'demonstration' }
}
