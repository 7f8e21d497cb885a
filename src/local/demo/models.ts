import { DemoError } from './request.ts'

/**
 * Every model id that the demo provider serves. README.md of this folder says what each answers.
 */
export const DEMO_MODELS = ['demo/echo', 'demo/lorem', 'demo/tools', 'demo/refusal'] as const

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

/** Gives the model of that id, or throws the 404 that OpenAI gives for an unknown one. */
export function findModel(id: string): DemoModel {
  const model = DEMO_MODELS.find((candidate) => candidate === id)
  if (model !== undefined) return model
  throw unknownModel(id, DEMO_MODELS)
}

/** The same for a model of embeddings. */
export function findEmbeddingModel(id: string): typeof DEMO_EMBEDDING_MODEL {
  if (id === DEMO_EMBEDDING_MODEL.id) return DEMO_EMBEDDING_MODEL
  throw unknownModel(id, [DEMO_EMBEDDING_MODEL.id])
}

/** Throws the same for what is no model of images. */
export function checkImageModel(id: string): void {
  if (id !== DEMO_IMAGE_MODEL) throw unknownModel(id, [DEMO_IMAGE_MODEL])
}

/** Gives one entry of the model list. */
export function describeModel(id: string): Readonly<Record<string, unknown>> {
  return { id, object: 'model', created: 0, owned_by: 'demonstration' }
}

function unknownModel(id: string, known: readonly string[]): DemoError {
  return new DemoError({
    status: 404,
    code: 'model_not_found',
    param: 'model',
    message: `The model \`${id}\` does not exist; this demonstration serves ${known.join(', ')}.`,
  })
}
