import type { IncomingHttpHeaders } from 'node:http'
import type { Caller } from '../../api/context.ts'
import { ApiError } from '../../api/errors.ts'
import { type NodeHello, parseHello } from '../protocol/hello.ts'
import type { NodeRecords } from '../registry/node-records.ts'
import { startState } from '../registry/node-state.ts'
import type { NodesStore, StoredNode } from '../registry/nodes-store.ts'
import type { AcceptedNode } from '../runs/connection.ts'
import type { NodeLimits } from '../runs/limits.ts'

export type RegisteredNode = Pick<StoredNode, 'nodeId' | 'accountId' | 'isArchived' | 'state'> & {
  readonly hardware: { readonly vram: number | null } | null
}

export type ConnectionRegistry = Pick<
  NodesStore,
  'setState' | 'markConnected' | 'markDisconnected' | 'markSeen' | 'endAbandoned'
> & {
  find(nodeId: string): Promise<RegisteredNode | null>
  findBenchmark(nodeId: string, model: string): Promise<{ readonly tokensPerSecond: number } | null>
}

/** The node gets this reason with close code 1008. */
type Refusal = { readonly kind: 'refused'; readonly reason: string }

/**
 * Why the registry refuses a node that connects or is connected. The deployed service's texts are
 * used where they are known.
 */
export const REFUSALS = {
  /**
   * Also sent for a node of another account, because the text must not show that the node exists.
   */
  nodeUnknown: 'Node is not registered',
  nodeArchived: 'Node is archived',
  nodeDisabled: 'Node is disabled',
  benchmarkMissing: 'Benchmarking is not completed',
  nodeConnected: 'Node with same node id already connected',
} as const

/**
 * A node that may connect now. Its id stays reserved until `release`, so that only one of two
 * simultaneous handshakes gets the id.
 */
type AdmittedNode = {
  readonly kind: 'admitted'
  readonly node: AcceptedNode
  /** The gateway checks the key again while the node is connected. */
  readonly key: string
  release(): void
}

/**
 * Decides from a handshake's headers whether the node may connect. Rejects with ApiError when the
 * refusal goes over HTTP.
 */
export type AdmitNode = (headers: IncomingHttpHeaders) => Promise<AdmittedNode | Refusal>

type Connected = {
  isAlive(timeoutMs: number): Promise<boolean>
  terminate(why: string): void
}

type AdmissionParts = {
  readonly registry: ConnectionRegistry
  readonly authenticate: Authenticate
  readonly records: NodeRecords
  readonly limits: NodeLimits
  readonly connected: (nodeId: string) => Connected | null
  /**
   * Claims the node for this gateway. False if the node is connected to another gateway of the
   * service, and answers there. A connection without an answer is ended.
   */
  readonly claimElsewhere: (nodeId: string) => Promise<boolean>
  readonly unclaim: (nodeId: string) => void
}

/**
 * Admits nodes: checks key, headers and registration, and keeps one connection per node. An old
 * connection that answers a ping stays, and the new connection is refused. An old connection that
 * does not answer is half-open, and the new connection replaces it.
 */
export function createNodeAdmission(parts: AdmissionParts): AdmitNode {
  const claimed = new Set<string>()

  async function claim(nodeId: string): Promise<boolean> {
    if (claimed.has(nodeId)) return false
    claimed.add(nodeId)
    let isClaimed = false
    try {
      const old = parts.connected(nodeId)
      if (old !== null && (await old.isAlive(parts.limits.takeoverMs))) return false
      old?.terminate('its node dialled again')
      isClaimed = await parts.claimElsewhere(nodeId)
      return isClaimed
    } finally {
      if (!isClaimed) claimed.delete(nodeId)
    }
  }

  function release(nodeId: string): void {
    claimed.delete(nodeId)
    parts.unclaim(nodeId)
  }

  return async (headers) => {
    const { accountId, key } = await authenticateNode(headers, parts.authenticate)
    const checked = await checkHeaders(headers, accountId, parts)
    if (checked.kind === 'refused') return checked
    const { node } = checked
    if (!(await claim(node.nodeId))) return refuse('nodeConnected')
    return { kind: 'admitted', node, key, release: () => release(node.nodeId) }
  }
}

async function checkHeaders(
  headers: IncomingHttpHeaders,
  accountId: string,
  parts: AdmissionParts,
): ReturnType<typeof checkHello> {
  const parsed = parseHello(headers)
  if (parsed.kind === 'refused') return parsed
  // The end of the node's earlier connection must be stored before the node's state is read.
  await parts.records.settled(parsed.hello.nodeId)
  return checkHello(parsed.hello, accountId, parts).catch((cause: unknown) => {
    throw new ApiError('not_ready', 'Nodes cannot be looked up at the moment, try again', { cause })
  })
}

/**
 * Checks a node against the registry. The node must belong to the account. It must not be archived
 * or disabled. An LLM node also needs a fast enough benchmark of its model. The benchmark is the
 * node's own claim, and only decides whether the node may connect. Rejects when the database cannot
 * be reached.
 */
async function checkHello(
  hello: NodeHello,
  accountId: string,
  { registry, limits }: { readonly registry: ConnectionRegistry; readonly limits: NodeLimits },
): Promise<{ readonly kind: 'accepted'; readonly node: AcceptedNode } | Refusal> {
  const registered = await registry.find(hello.nodeId)
  if (registered === null || registered.accountId !== accountId) return refuse('nodeUnknown')
  if (registered.isArchived) return refuse('nodeArchived')
  const state = startState(registered.state)
  if (state === 'RUNNING_DISABLED') return refuse('nodeDisabled')
  // A frame for images names no model, so a connection for images has exactly one model.
  const models =
    hello.modelType === 'LLM'
      ? await benchmarked(hello, registry, limits)
      : hello.models.slice(0, 1)
  // Only the first model must have a benchmark.
  if (models[0] !== hello.models[0]) return refuse('benchmarkMissing')
  const vramMb = registered.hardware?.vram ?? null
  return { kind: 'accepted', node: { ...hello, models, accountId, state, vramMb } }
}

async function benchmarked(
  { nodeId, models }: NodeHello,
  registry: ConnectionRegistry,
  { tokensPerSecondMin }: NodeLimits,
): Promise<readonly string[]> {
  const benchmarks = await Promise.all(models.map((model) => registry.findBenchmark(nodeId, model)))
  return models.filter(
    (_, index) => (benchmarks[index]?.tokensPerSecond ?? 0) >= tokensPerSecondMin,
  )
}

function refuse(reason: keyof typeof REFUSALS): Refusal {
  return { kind: 'refused', reason: REFUSALS[reason] }
}

/**
 * Finds the account of an API key. Null when the key is malformed, unknown or revoked. Rejects when
 * keys cannot be checked.
 */
export type Authenticate = (key: string) => Promise<Pick<Caller, 'accountId' | 'scopes'> | null>

/**
 * Returns the account whose key is in a handshake. Throws ApiError `authorization_missing`,
 * `invalid_credentials` (also when the key lacks the scope `nodes`), or `not_ready` when keys
 * cannot be checked. These errors are answered over HTTP before the upgrade, because the public
 * client recognises a bad key by status 401.
 */
async function authenticateNode(
  headers: IncomingHttpHeaders,
  authenticate: Authenticate,
): Promise<{ readonly accountId: string; readonly key: string }> {
  const header = headers.authorization
  if (header === undefined)
    throw new ApiError(
      'authorization_missing',
      'Expected the header Authorization: Bearer <API_KEY>',
    )
  const [, key] = /^Bearer +([\x21-\x7e]{1,512})$/i.exec(header) ?? []
  if (key === undefined) throw new ApiError('invalid_credentials', 'The API key is not valid')
  const caller = await authenticate(key).catch((cause: unknown) => {
    if (cause instanceof ApiError) throw cause
    throw new ApiError('not_ready', 'API keys cannot be checked at the moment, try again', {
      cause,
    })
  })
  if (caller === null) throw new ApiError('invalid_credentials', 'The API key is not valid')
  if (!caller.scopes.includes('nodes'))
    throw new ApiError('invalid_credentials', 'The API key may not be used for nodes')
  return { accountId: caller.accountId, key }
}
