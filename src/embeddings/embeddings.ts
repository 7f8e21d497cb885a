import { ApiError, ValidationError } from '../api/errors.ts'
import type { Opening } from '../observability/logger.ts'
import { runAll } from '../runtime/run-all.ts'
import { serviceCallErrorOf } from '../upstream/call-error.ts'
import { type Endpoint, EndpointError, openAiOptions, openEndpoint } from '../upstream/endpoint.ts'
import type { EmbeddingModel, EmbeddingsConfig } from '../upstream/settings.ts'
import { loadCl100k } from './byte-pairs.ts'
import { type EmbeddingAnswer, readEmbeddings } from './embedding-answers.ts'
import type { EmbeddingInputs, EmbeddingRequest } from './embedding-request.ts'
import { createTokenCounter, type TokenCounter } from './token-counter.ts'

/** Limit of one request to the endpoint. OpenAI allows 300,000. */
const BATCH_TOKENS_MAX = 250_000
/** Maximum batches of one call at the same time. */
const BATCHES_AT_ONCE = 4

type EmbeddingsCall = {
  readonly request: EmbeddingRequest
  /** Aborted when the caller leaves or the gateway stops. The methods throw the signal's reason. */
  readonly signal: AbortSignal
  /**
   * Counts bytes that this call holds. Throws ApiError `overloaded` when all calls together hold
   * too much.
   */
  readonly reserve: (bytes: number) => void
}

/** Input tokens, counted before the endpoint is called. */
type CountedInputs = { readonly tokens: readonly number[]; readonly total: number }

export type Embeddings = {
  /** The models that callers may name. */
  readonly models: readonly EmbeddingModel[]
  /**
   * Throws ApiError `unsupported_model`, and ValidationError for an input with too many tokens for
   * the model.
   */
  count(call: EmbeddingsCall): Promise<CountedInputs>
  /** `text` is the response's JSON (interface 2.6). Throws ApiError and the signal's reason. */
  create(call: EmbeddingsCall, counted: CountedInputs): Promise<EmbeddingsReply>
}

type EmbeddingsReply = { readonly text: string; readonly usedTokens: number }

type EmbeddingsOptions = {
  /** Null if no endpoint makes embeddings. Then there are no models. */
  readonly source: {
    readonly endpoint: Pick<Endpoint, 'ask'>
    readonly models: readonly EmbeddingModel[]
    readonly batchInputsMax: number
  } | null
  readonly counter: TokenCounter
}

/** 2048 embeddings of 3072 numbers are 140 MB as text, and a fifth of that as base64. */
const ANSWER_BYTES_MAX = 160 * 1024 * 1024

/** Null `config`: there are no models. */
export function openEmbeddings(
  config: EmbeddingsConfig | null,
  { onStarted }: Opening,
): Embeddings {
  const counter = createTokenCounter(loadCl100k)
  if (config === null) return createEmbeddings({ source: null, counter })
  const endpoint = openEndpoint(openAiOptions(config, ANSWER_BYTES_MAX), onStarted)
  return createEmbeddings({ source: { ...config, endpoint }, counter })
}

/** Many inputs are sent in batches. If one batch fails, the call fails. */
export function createEmbeddings({ source, counter }: EmbeddingsOptions): Embeddings {
  const models = source?.models ?? []
  return {
    models,
    async count({ request, signal }) {
      const model = models.find(({ id }) => id === request.model)
      if (model === undefined)
        throw new ApiError('unsupported_model', 'This service makes no embeddings with this model')
      return countInputs(request.inputs, { max: model.inputTokensMax, counter, signal })
    },
    async create(call, counted) {
      if (source === null)
        throw new ApiError('unsupported_model', 'This service makes no embeddings')
      const batches = splitBatches(counted.tokens, source.batchInputsMax)
      const answers = await runAll(
        batches.map(
          (batch) => (signal: AbortSignal) => askBatch(source.endpoint, { ...call, signal }, batch),
        ),
        { atOnce: BATCHES_AT_ONCE, signal: call.signal },
      ).catch((error: unknown) => {
        throw error instanceof EndpointError ? serviceCallErrorOf(error) : error
      })
      return writeReply(call.request.model, answers, batches)
    },
  }
}

/** The inputs `from` to `to` - 1. Together they have `tokens` tokens. */
type Batch = { readonly from: number; readonly to: number; readonly tokens: number }

async function countInputs(
  inputs: EmbeddingInputs,
  {
    max,
    counter,
    signal,
  }: { readonly max: number; readonly counter: TokenCounter; readonly signal: AbortSignal },
): Promise<CountedInputs> {
  const tokens: number[] = []
  for (const [index, item] of inputs.items.entries()) {
    const count =
      typeof item === 'string' ? await counter.count(item, { max, signal }) : item.length
    if (count === null || count > max)
      throw tooLong({ index, max, isList: inputs.items.length > 1 })
    tokens.push(count)
  }
  return { tokens, total: tokens.reduce((sum, count) => sum + count, 0) }
}

function tooLong({
  index,
  max,
  isList,
}: {
  readonly index: number
  readonly max: number
  readonly isList: boolean
}): ValidationError {
  const loc = ['body', 'input', ...(isList ? [index] : [])]
  return new ValidationError([
    { loc, msg: `Input should have at most ${max} tokens for this model`, type: 'too_long' },
  ])
}

function splitBatches(tokens: readonly number[], inputsMax: number): readonly Batch[] {
  const batches: Batch[] = []
  let from = 0
  let sum = 0
  for (const [index, count] of tokens.entries()) {
    const isFull = index - from >= inputsMax || sum + count > BATCH_TOKENS_MAX
    if (isFull && index > from) {
      batches.push({ from, to: index, tokens: sum })
      from = index
      sum = 0
    }
    sum += count
  }
  batches.push({ from, to: tokens.length, tokens: sum })
  return batches
}

async function askBatch(
  endpoint: Pick<Endpoint, 'ask'>,
  { request, signal, reserve }: EmbeddingsCall,
  { from, to }: Batch,
): Promise<EmbeddingAnswer> {
  const { model, inputs, encodingFormat, others } = request
  const body = {
    ...others,
    model,
    input: inputs.items.slice(from, to),
    encoding_format: encodingFormat,
  }
  const answer = await endpoint.ask({
    method: 'POST',
    path: '/embeddings',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
    signal,
    reserve,
  })
  return readEmbeddings(answer, { count: to - from, encodingFormat })
}

/** If the endpoint states no count, this gateway's own count is used. */
function writeReply(
  model: string,
  answers: readonly EmbeddingAnswer[],
  batches: readonly Batch[],
): EmbeddingsReply {
  const [first] = answers
  if (answers.some(({ dimensions }) => dimensions !== first?.dimensions))
    throw new ApiError('provider_error', 'The provider gave embeddings of different lengths')
  const usedTokens = answers.reduce(
    (sum, { promptTokens }, index) => sum + (promptTokens ?? batches[index]?.tokens ?? 0),
    0,
  )
  const data = answers
    .flatMap(({ vectors }) => vectors)
    .map((vector, index) => `{"object":"embedding","index":${index},"embedding":${vector}}`)
  const usage = JSON.stringify({ prompt_tokens: usedTokens, total_tokens: usedTokens })
  const text = `{"object":"list","data":[${data.join()}],"model":${JSON.stringify(model)},"usage":${usage}}`
  return { text, usedTokens }
}
