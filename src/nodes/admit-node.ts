import type { IncomingHttpHeaders } from 'node:http'
import { ApiError } from '../api/errors.ts'
import { type Authenticate, authenticateNode } from './authenticate-node.ts'
import { type AcceptedNode, checkHello, parseHello, REFUSALS, type Refusal } from './handshake.ts'
import type { NodeLimits } from './limits.ts'
import type { NodeConnection } from './node-connection.ts'
import type { NodeRecords } from './node-records.ts'
import type { NodeRegistry } from './ports.ts'

/** A node that may connect now. Its id is claimed until `release`, so that two handshakes at once cannot both have it. */
export type AdmittedNode = {
  readonly kind: 'admitted'
  readonly node: AcceptedNode
  /** What it dialled with, to be looked at again while it is connected. */
  readonly key: string
  release(): void
}

/** Decides over a handshake by its headers. Rejects with ApiError for what is answered over HTTP. */
export type AdmitNode = (headers: IncomingHttpHeaders) => Promise<AdmittedNode | Refusal>

export type AdmissionParts = {
  readonly registry: NodeRegistry
  readonly authenticate: Authenticate
  readonly records: NodeRecords
  readonly limits: NodeLimits
  /** The connection that the node has now. */
  readonly connected: (nodeId: string) => NodeConnection | null
}

/**
 * Admission of nodes: key, headers, registration, and one connection per node. An old connection that does not answer a ping
 * gives way to the new one: it is half-open, and its node is the one that dials again. One that answers stays.
 */
export function createAdmission(parts: AdmissionParts): AdmitNode {
  const claimed = new Set<string>()

  async function claim(nodeId: string): Promise<boolean> {
    if (claimed.has(nodeId)) return false
    claimed.add(nodeId)
    const old = parts.connected(nodeId)
    if (old !== null && (await old.isAlive(parts.limits.takeoverMs))) {
      claimed.delete(nodeId)
      return false
    }
    old?.terminate('its node dialled again')
    return true
  }

  return async (headers) => {
    const { accountId, key } = await authenticateNode(headers, parts.authenticate)
    const checked = await checkHeaders(headers, accountId, parts)
    if (checked.kind === 'refused') return checked
    const { node } = checked
    if (!(await claim(node.nodeId))) return { kind: 'refused', reason: REFUSALS.nodeConnected }
    return { kind: 'admitted', node, key, release: () => void claimed.delete(node.nodeId) }
  }
}

async function checkHeaders(
  headers: IncomingHttpHeaders,
  accountId: string,
  parts: AdmissionParts,
): ReturnType<typeof checkHello> {
  const parsed = parseHello(headers)
  if (parsed.kind === 'refused') return parsed
  // Its last going must be stored before its state is read.
  await parts.records.settled(parsed.hello.nodeId)
  return checkHello(parsed.hello, accountId, parts).catch((cause: unknown) => {
    throw new ApiError('not_ready', 'Nodes cannot be looked up at the moment, try again', { cause })
  })
}
