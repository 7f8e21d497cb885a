import { printable } from '../../../attestation/report/printable.ts'
import type { NodeAccess } from '../../agent/config.ts'
import { type GatewayClient, GatewayError, type ListedNode } from '../../agent/gateway-client.ts'
import type { Logger } from '../../observability/logger.ts'
import { CliError } from '../faults.ts'
import { type KeptNodes, keptNodesIn } from './kept-nodes.ts'

/**
 * Returns the id of the node that this machine's agent must run. It uses the first of these that
 * exists: the configured id, the id in the file, the account's node with this name. If none exists,
 * it makes a new node. The id that was found or made is stored in the file. Rejects with CliError
 * or GatewayError. If several agents start on one machine at the same time, only one node is made.
 * If two machines use one name and start at the same moment, they may make two nodes.
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
    const message = found === null ? 'node made' : 'node found by its name'
    log.info({ node_id: nodeId, name, file: nodesFile }, message)
    return nodeId
  })
}

/**
 * Returns the id of the same node as openOwnNode, but makes no node. Rejects with CliError or
 * GatewayError.
 */
export async function findOwnNode(access: NodeAccess, gateway: GatewayClient): Promise<string> {
  if (access.nodeId !== null) return access.nodeId
  const { gatewayUrl, nodeName } = access
  const kept = await findKept(keptNodesIn(access.nodesFile), access)
  const nodeId = kept ?? (await findByName(gateway, nodeName))?.node_id
  if (nodeId !== undefined) return nodeId
  throw new CliError(
    `this account has no node called ${printable(nodeName)} at ${gatewayUrl}: \`run\` makes it. Another node is named with --name or --node-id, and \`list\` shows them`,
  )
}

function findKept(nodes: KeptNodes, { gatewayUrl, nodeName }: NodeAccess): Promise<string | null> {
  return nodes.find({ gateway: gatewayUrl, name: nodeName })
}

/**
 * Returns true if the account still has the stored node. If the gateway does not answer, the stored
 * node is used, and the agent retries until the gateway answers. Throws CliError for an archived
 * node.
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
      `node ${describe(node)} is archived. Bring it back in the gateway's console, under Nodes, or run another node with --name`,
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
    `this account has ${others.length + 1} nodes called ${printable(name)}: ${ids}. Choose one with --node-id or NODE_ID, or another name with --name`,
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
