import { printable } from '#attestation/report/printable.ts'
import type { NodeAccess } from '../../agent/config.ts'
import { type GatewayClient, GatewayError, type ListedNode } from '../../agent/gateway-client.ts'
import type { Logger } from '../../observability/logger.ts'
import { CliError } from '../faults.ts'
import { type KeptNodes, keptNodesIn } from './kept-nodes.ts'

/**
 * Returns the first of these that exists: the configured id, the id in the file, the account's node
 * with this name, a new node. Stores a found or new id in the file. Rejects with CliError or
 * GatewayError. Agents that start at the same time on one machine make only one node. Two machines
 * with the same name may make two nodes.
 */
export async function openOwnNode(
  access: NodeAccess,
  { gateway, log }: { readonly gateway: GatewayClient; readonly log: Logger },
): Promise<string> {
  if (access.nodeId !== null) return access.nodeId
  const { nodesFile, nodeName: name } = access
  const nodes = keptNodesIn(nodesFile)
  const kept = await findKept(nodes, access)
  if (kept !== null && (await isUsable(kept, access, { gateway, log }))) return kept
  return nodes.locked(async () => {
    const keptMeanwhile = await findKept(nodes, access)
    if (keptMeanwhile !== null && keptMeanwhile !== kept) return keptMeanwhile
    const found = await findByName(gateway, name)
    if (found?.is_connected) throw new CliError(explainConnected(found))
    const nodeId = found?.node_id ?? (await gateway.createNode(name))
    await nodes.keep({ gateway: access.gatewayUrl, name }, nodeId)
    const message = found === null ? 'node created' : 'node found by its name'
    log.info({ node_id: nodeId, name, file: nodesFile }, message)
    return nodeId
  })
}

/** Does the same as openOwnNode, but makes no node. */
export async function findOwnNode(access: NodeAccess, gateway: GatewayClient): Promise<string> {
  if (access.nodeId !== null) return access.nodeId
  const { gatewayUrl, nodeName } = access
  const kept = await findKept(keptNodesIn(access.nodesFile), access)
  const nodeId = kept ?? (await findByName(gateway, nodeName))?.node_id
  if (nodeId !== undefined) return nodeId
  throw new CliError(
    `this account has no node called ${printable(nodeName)} at ${gatewayUrl}: \`run\` creates ` +
      'it. Another node is named with --name or --node-id, and `list` shows them',
  )
}

function findKept(nodes: KeptNodes, { gatewayUrl, nodeName }: NodeAccess): Promise<string | null> {
  return nodes.find({ gateway: gatewayUrl, name: nodeName })
}

/**
 * Also returns true if the gateway does not answer: the agent then retries. Throws CliError for an
 * archived node.
 */
async function isUsable(
  nodeId: string,
  { nodesFile }: NodeAccess,
  { gateway, log }: { readonly gateway: GatewayClient; readonly log: Logger },
): Promise<boolean> {
  const listed = await gateway.listNodes().catch((fault: unknown) => {
    if (fault instanceof GatewayError) return null
    throw fault
  })
  if (listed === null) return true
  const node = listed.find(({ node_id: id }) => id === nodeId)
  if (node?.is_archived)
    throw new CliError(
      `node ${describe(node)} is archived. Bring it back in the gateway's console, under ` +
        'Nodes, or run another node with --name',
    )
  if (node === undefined) log.warn({ node_id: nodeId, file: nodesFile }, 'the kept node is gone')
  return node !== undefined
}

/** Archived nodes are ignored. */
async function findByName(gateway: GatewayClient, name: string): Promise<ListedNode | null> {
  const nodes = await gateway.listNodes()
  const [found = null, ...others] = nodes.filter(
    ({ name_alias: alias, is_archived: isArchived }) => alias === name && isArchived !== true,
  )
  if (found === null || others.length === 0) return found
  const ids = [found, ...others].map(({ node_id: id }) => printable(id)).join(', ')
  throw new CliError(
    `this account has ${others.length + 1} nodes called ${printable(name)}: ${ids}. Choose one ` +
      'with --node-id or NODE_ID, or another name with --name',
  )
}

function explainConnected(node: ListedNode): string {
  return (
    `node ${describe(node)} is connected already, and this machine has no record that the node is its own. ` +
    `Give another name with --name, or --node-id ${printable(node.node_id)} when it is this machine's node`
  )
}

function describe({ name_alias: name, node_id: nodeId }: ListedNode): string {
  return `${printable(name)} (${printable(nodeId)})`
}
