import { EndpointError } from '../upstream/endpoint.ts'

/** No model returns longer embeddings. */
const DIMENSIONS_MAX = 65_536

export type EmbeddingAnswer = {
  /** JSON text of each embedding, in the order of the inputs: a list of numbers, or base64. */
  readonly vectors: readonly string[]
  /** Every embedding has this many numbers. */
  readonly dimensions: number
  /** Null if the endpoint states no count. */
  readonly promptTokens: number | null
}

/**
 * Reads embeddings in either encoding. Returns them in `encodingFormat`: numbers as the endpoint
 * wrote them, or little-endian float32 in base64. There must be one embedding of finite numbers for
 * each of `count` inputs, all of the same length. Otherwise throws EndpointError `bad_answer`.
 */
export function readEmbeddings(
  answer: unknown,
  {
    count,
    encodingFormat,
  }: { readonly count: number; readonly encodingFormat: 'float' | 'base64' },
): EmbeddingAnswer {
  const data = memberOf(answer, 'data')
  if (!Array.isArray(data) || data.length !== count) throw fault(`a list of ${count} embeddings`)
  const vectors = new Array<string>(count)
  const seen = new Set<number>()
  let dimensions: number | null = null
  for (const [place, entry] of data.entries()) {
    const index = memberOf(entry, 'index') ?? place
    if (
      typeof index !== 'number' ||
      !Number.isInteger(index) ||
      index < 0 ||
      index >= count ||
      seen.has(index)
    )
      throw fault('each index once')
    seen.add(index)
    const vector = readVector(memberOf(entry, 'embedding'), encodingFormat)
    dimensions ??= vector.dimensions
    if (vector.dimensions !== dimensions) throw fault('embeddings of one length')
    vectors[index] = vector.json
  }
  const promptTokens = memberOf(memberOf(answer, 'usage'), 'prompt_tokens')
  const isCount =
    typeof promptTokens === 'number' && Number.isSafeInteger(promptTokens) && promptTokens >= 0
  return { vectors, dimensions: dimensions ?? 0, promptTokens: isCount ? promptTokens : null }
}

type Vector = { readonly json: string; readonly dimensions: number }

function readVector(embedding: unknown, encodingFormat: 'float' | 'base64'): Vector {
  const numbers = typeof embedding === 'string' ? decodeFloats(embedding) : embedding
  const isVector =
    Array.isArray(numbers) &&
    numbers.length > 0 &&
    numbers.length <= DIMENSIONS_MAX &&
    numbers.every((number) => Number.isFinite(number))
  if (!isVector) throw fault(`1 to ${DIMENSIONS_MAX} finite numbers in each embedding`)
  if (
    encodingFormat === 'base64' &&
    !numbers.every((number) => Number.isFinite(Math.fround(number)))
  )
    throw fault('numbers that a float32 can hold')
  const json = encodingFormat === 'float' ? JSON.stringify(numbers) : `"${encodeFloats(numbers)}"`
  return { json, dimensions: numbers.length }
}

const BASE64 = /^[A-Za-z0-9+/]+={0,2}$/
const FLOAT_BYTES = 4

/** Little-endian float32 numbers. Null for any other text. */
function decodeFloats(base64: string): readonly number[] | null {
  if (!BASE64.test(base64)) return null
  const bytes = Buffer.from(base64, 'base64')
  if (bytes.length % FLOAT_BYTES !== 0) return null
  return Array.from({ length: bytes.length / FLOAT_BYTES }, (_, index) =>
    bytes.readFloatLE(index * FLOAT_BYTES),
  )
}

function encodeFloats(numbers: readonly number[]): string {
  const bytes = Buffer.alloc(numbers.length * FLOAT_BYTES)
  numbers.forEach((number, index) => {
    bytes.writeFloatLE(number, index * FLOAT_BYTES)
  })
  return bytes.toString('base64')
}

function memberOf(value: unknown, name: string): unknown {
  const isObject = typeof value === 'object' && value !== null && Object.hasOwn(value, name)
  return isObject ? Reflect.get(value, name) : undefined
}

function fault(expected: string): EndpointError {
  return new EndpointError('bad_answer', `expected ${expected}`)
}
