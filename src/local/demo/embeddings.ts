import { z } from 'zod'
import { splitTokens } from './choices.ts'
import { checkModel, DEMO_EMBEDDING_MODEL } from './models.ts'
import { createRandom } from './random.ts'
import { parseBody } from './request.ts'

/** OpenAI's limit. */
const INPUTS_MAX = 2_048
const DIMENSIONS_MAX = 3_072

const tokenIds = z.array(z.int().min(0)).min(1)

const requestSchema = z.looseObject({
  model: z.string(),
  input: z.union([
    z.string().min(1),
    z.array(z.string().min(1)).min(1).max(INPUTS_MAX),
    tokenIds,
    z.array(tokenIds).min(1).max(INPUTS_MAX),
  ]),
  encoding_format: z.enum(['float', 'base64']).nullish(),
  dimensions: z.int().min(1).max(DIMENSIONS_MAX).nullish(),
})

/**
 * Returns the answer to an embedding request. Each token has a fixed pseudo-random vector. A text's
 * vector is the normalised sum of its tokens' vectors, so texts with common words have near
 * vectors. No model makes these vectors.
 */
export function embed(body: Uint8Array): Readonly<Record<string, unknown>> {
  const request = parseBody(requestSchema, body)
  const model = DEMO_EMBEDDING_MODEL
  checkModel(request.model, [model.id])
  const inputs = inputsOf(request.input)
  const dimensions = request.dimensions ?? model.dimensions
  const data = inputs.map((tokens, index) => {
    const vector = vectorOf(tokens, dimensions)
    const isBase64 = request.encoding_format === 'base64'
    return {
      object: 'embedding',
      index,
      embedding: isBase64 ? encodeFloats(vector) : Array.from(vector),
    }
  })
  const promptTokens = inputs.reduce((sum, tokens) => sum + tokens.length, 0)
  const usage = { prompt_tokens: promptTokens, total_tokens: promptTokens }
  return { object: 'list', data, model: model.id, usage }
}

type Input = z.infer<typeof requestSchema>['input']

function inputsOf(input: Input): readonly (readonly string[])[] {
  const items = typeof input === 'string' || typeof input[0] === 'number' ? [input] : input
  return items.map((item) => {
    if (typeof item === 'number') return [String(item)]
    return typeof item === 'string' ? splitTokens(item) : item.map(String)
  })
}

function vectorOf(tokens: readonly string[], dimensions: number): Float32Array {
  const sum = new Float64Array(dimensions)
  for (const [token, count] of countEach(tokens)) {
    const random = createRandom(token.trim().toLowerCase())
    for (let index = 0; index < dimensions; index++)
      sum[index] = (sum[index] ?? 0) + count * (random() - 0.5)
  }
  const length = Math.hypot(...sum) || 1
  return Float32Array.from(sum, (value) => value / length)
}

function countEach(tokens: readonly string[]): ReadonlyMap<string, number> {
  const counts = new Map<string, number>()
  for (const token of tokens) counts.set(token, (counts.get(token) ?? 0) + 1)
  return counts
}

function encodeFloats(vector: Float32Array): string {
  const bytes = Buffer.alloc(vector.length * 4)
  vector.forEach((value, index) => {
    bytes.writeFloatLE(value, index * 4)
  })
  return bytes.toString('base64')
}
