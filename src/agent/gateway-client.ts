import { z } from 'zod'
import {
  callGateway,
  errorWordsOf,
  type GatewayAnswer,
  NoAnswer,
  systemReasonOf,
} from '#client/gateway.ts'
import { parseJson } from '../nodes/protocol/frames.ts'
import type { NodeHardware } from '../nodes/protocol/registration.ts'
import { VERSION } from '../runtime/version.ts'

const GATEWAY_LIMITS = { timeoutMs: 30_000, bodyBytesMax: 1024 * 1024 } as const
/** One answer lists all nodes of an account: up to 20,000. */
const LIST_BYTES_MAX = 64 * 1024 * 1024

/** The message is written for the node's operator and contains no key. */
export class GatewayError extends Error {
  override readonly name = 'GatewayError'
  /** Null if the gateway did not answer. */
  readonly status: number | null
  /** True if the gateway itself refused the call. A retry then changes nothing. */
  readonly isFinal: boolean

  constructor(
    message: string,
    details: { readonly status?: number | null; readonly isFinal?: boolean } = {},
  ) {
    super(message)
    this.status = details.status ?? null
    this.isFinal = details.isFinal ?? false
  }
}

/** Every call rejects with GatewayError. */
export type GatewayClient = {
  /** Returns the node's id. */
  createNode(name: string): Promise<string>
  /** Oldest first, with archived nodes. */
  listNodes(): Promise<readonly ListedNode[]>
  /** The hardware is null until it is saved. Null if the node does not exist. */
  findNode(nodeId: string): Promise<NodeInfo | null>
  saveHardware(nodeId: string, hardware: NodeHardware): Promise<void>
  fetchStats(nodeId: string): Promise<NodeStats>
  /** Tokens per second. Null if the model has no benchmark. */
  findBenchmark(nodeId: string, model: string): Promise<number | null>
  saveBenchmark(benchmark: {
    readonly nodeId: string
    readonly model: string
    readonly tokensPerSecond: number
  }): Promise<void>
}

const listedSchema = z.looseObject({
  node_id: z.string(),
  name_alias: z.string(),
  status: z.string().nullish(),
  is_archived: z.boolean().nullish(),
  is_connected: z.boolean().nullish(),
  models: z
    .array(z.looseObject({ model_name: z.string(), tokens_per_second: z.number().nullish() }))
    .nullish(),
  benchmark_tokens_per_second: z.number().nullish(),
  requests_served: z.number().nullish(),
  requests_served_day: z.number().nullish(),
  run_duration_seconds: z.number().nullish(),
})
const listSchema = z.looseObject({ nodes: z.array(listedSchema) })
const infoSchema = z.looseObject({
  node_id: z.string(),
  name_alias: z.string(),
  status: z.string(),
  cpu_model: z.string().nullish(),
})
const statsSchema = z.looseObject({ requests_served: z.number().nullish() })
const benchmarkSchema = z.looseObject({ tokens_per_second: z.number() })
const createdSchema = z.looseObject({ node_id: z.string().min(1).max(256) })
const okSchema = z.looseObject({ response: z.literal('OK') })

export type ListedNode = z.output<typeof listedSchema>
/** Interface 2.7. */
type NodeInfo = z.output<typeof infoSchema>
/** Interface 2.7. */
type NodeStats = z.output<typeof statsSchema>

/** Redirects are not followed. TLS certificates are verified. */
export function createGatewayClient(options: {
  /** `http(s)://host[:port][/path]`, without `/v1`. */
  readonly url: string
  readonly apiKey: string
  /** Aborting rejects the running calls. */
  readonly signal?: AbortSignal
}): GatewayClient {
  const send = createSend(options)
  const query = (members: Readonly<Record<string, string>>) =>
    new URLSearchParams(members).toString()
  return {
    createNode: async (name) =>
      (await send('POST', '/v1/dashboard/node', createdSchema, { body: { node_name: name } }))
        .node_id,
    listNodes: async () => {
      const options = { bytesMax: LIST_BYTES_MAX }
      return (await send('GET', '/v1/dashboard/nodes', listSchema, options)).nodes
    },
    findNode: (nodeId) =>
      orNull(send('GET', `/v1/node/info?${query({ node_id: nodeId })}`, infoSchema)),
    // Sends no `power_limit` if it is null, because other gateways could read null as a limit.
    saveHardware: async (nodeId, { power_limit: limit, ...hardware }) => {
      const body = {
        node_id: nodeId,
        ...hardware,
        ...(limit === null ? {} : { power_limit: limit }),
      }
      await send('POST', '/v1/node/info', okSchema, { body })
    },
    fetchStats: (nodeId) =>
      send('GET', `/v1/node/stats?${query({ node_id: nodeId })}`, statsSchema),
    findBenchmark: async (nodeId, model) => {
      const path = `/v1/node/benchmark?${query({ node_id: nodeId, model })}`
      return (await orNull(send('GET', path, benchmarkSchema)))?.tokens_per_second ?? null
    },
    saveBenchmark: async ({ nodeId, model, tokensPerSecond }) => {
      const body = { node_id: nodeId, model_name: model, tokens_per_second: tokensPerSecond }
      await send('POST', '/v1/node/benchmark', okSchema, { body })
    },
  }
}

type SendOptions = {
  readonly body?: object
  readonly bytesMax?: number
}

type Send = <Schema extends z.ZodType>(
  method: 'GET' | 'POST',
  path: string,
  schema: Schema,
  options?: SendOptions,
) => Promise<z.output<Schema>>

function createSend({ url, apiKey, signal }: Parameters<typeof createGatewayClient>[0]): Send {
  const { origin, pathname } = new URL(url)
  const gateway = {
    url: `${origin}${pathname.replace(/\/+$/, '')}`,
    apiKey,
    fetch,
    timeoutMs: GATEWAY_LIMITS.timeoutMs,
    headers: {
      'user-agent': `affidavit-agent/${VERSION}`,
      client_name: 'affidavit-agent',
      client_version: VERSION,
    },
  }
  return async (method, path, schema, { body, bytesMax = GATEWAY_LIMITS.bodyBytesMax } = {}) => {
    const call = { method, bytesMax, signal, ...(body === undefined ? {} : { body }) }
    const answer = await callGateway(gateway, path, call).catch((fault: unknown) => {
      if (fault instanceof NoAnswer) throw refusalOf(origin, fault)
      throw signal?.aborted ? new GatewayError(`the call of ${origin} was ended`) : fault
    })
    return parseReply(answer, schema)
  }
}

function refusalOf(origin: string, { code, status, message, cause }: NoAnswer): GatewayError {
  switch (code) {
    case 'redirected':
      return unfit(status)
    case 'too_large':
      return new GatewayError(message)
    case 'too_slow':
    case 'unreachable': {
      const reason = code === 'too_slow' ? 'it took too long' : systemReasonOf(cause)
      return new GatewayError(`the gateway at ${origin} cannot be reached (${reason})`)
    }
  }
}

function unfit(status: number | null): GatewayError {
  return new GatewayError(`expected an answer of a gateway, got status ${status}`, { status })
}

function parseReply<Schema extends z.ZodType>(
  { status, bytes }: GatewayAnswer,
  schema: Schema,
): z.output<Schema> {
  const text = new TextDecoder().decode(bytes)
  const value = schema.safeParse(parseJson(text))
  if (status === 200 && value.success) return value.data
  const refusal = errorWordsOf(bytes)
  if (refusal !== null && refusal.code !== null) {
    const { code, message } = refusal
    const isFinal = status >= 400 && status < 500 && status !== 408 && status !== 429
    throw new GatewayError(`the gateway refused: ${message} (${status} ${code})`, {
      status,
      isFinal,
    })
  }
  if (status === 422)
    throw new GatewayError(`the gateway refused what it was sent: ${text.slice(0, 500)}`, {
      status,
      isFinal: true,
    })
  throw unfit(status)
}

async function orNull<Value>(reply: Promise<Value>): Promise<Value | null> {
  try {
    return await reply
  } catch (error) {
    if (error instanceof GatewayError && error.status === 404 && error.isFinal) return null
    throw error
  }
}
