import { DemoError } from './errors.ts'

/** Every model id that the demo provider serves. README.md of this folder says what each answers. */
export const DEMO_MODELS = ['demo/echo', 'demo/lorem', 'demo/tools', 'demo/refusal'] as const

export type DemoModel = (typeof DEMO_MODELS)[number]

/** Gives the model of that id, or throws the 404 that OpenAI gives for an unknown one. */
export function findModel(id: string): DemoModel {
  const model = DEMO_MODELS.find((candidate) => candidate === id)
  if (model !== undefined) return model
  throw new DemoError({
    status: 404,
    code: 'model_not_found',
    param: 'model',
    message: `The model \`${id}\` does not exist; this demonstration serves ${DEMO_MODELS.join(', ')}.`,
  })
}

/** Gives one entry of the model list. */
export function describeModel(model: DemoModel): Readonly<Record<string, unknown>> {
  return { id: model, object: 'model', created: 0, owned_by: 'demonstration' }
}
