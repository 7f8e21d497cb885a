import { randomUUID } from 'node:crypto'
import type { GatewayConfig } from '#src/config.ts'
import type { ServingNodes } from '#src/nodes/hub/open-nodes.ts'
import { NODE_LIMITS, type NodeLimits } from '#src/nodes/runs/limits.ts'
import { startGateway, type TestGateway } from './gateway.ts'
import type { PostgresServer } from './postgres.ts'
import { startTestAgent, type TestAgent, type TestAgentOptions } from './run-agent.ts'
import {
  connectScriptedNode,
  type ScriptedNode,
  type ScriptedNodeOptions,
} from './scripted-node.ts'

/**
 * A gateway with its real nodes' side, over real sockets and a real database; the test connects
 * nodes.
 */
export type PlainStage = {
  readonly gateway: TestGateway
  readonly nodes: ServingNodes
  /**
   * Registers a node with hardware and a benchmark for each model; its state was RUNNING before.
   * Gives its id.
   */
  register(models: readonly string[]): Promise<string>
  /** Connects a scripted node. */
  connect(node: StagedNode): Promise<ScriptedNode>
  /**
   * Registers a node and starts an agent for it, in front of the backend; resolves when it is
   * connected.
   */
  startAgent(node: StagedAgent): Promise<TestAgent>
  /** Ends the agents, the nodes and the gateway. */
  stop(): Promise<void>
}

/**
 * A node that follows the protocol, with a script. If it has a `nodeId`, it is already registered.
 */
export type StagedNode = Partial<ScriptedNodeOptions> & { readonly model: string }

/** An agent in front of a backend. */
export type StagedAgent = Omit<Partial<TestAgentOptions>, 'nodeId' | 'models'> & {
  readonly backendUrl: string
  readonly models: readonly string[]
}

/** Opens a stage. `limits` override the defaults. */
export async function openPlainStage(
  options: {
    readonly limits?: Partial<NodeLimits>
    readonly settings?: Partial<GatewayConfig>
    /** Where the gateway gets its database. */
    readonly postgres?: Pick<PostgresServer, 'createDatabase'>
  } = {},
): Promise<PlainStage> {
  const { limits, ...given } = options
  const gateway = await startGateway({
    ...given,
    nodes: null,
    nodeLimits: { ...NODE_LIMITS, ...limits },
  })
  const { nodes } = gateway
  const agents: TestAgent[] = []
  let count = 0

  async function register(models: readonly string[]): Promise<string> {
    const nodeId = `test_node_number_${++count}`
    await registerNode(gateway, { nodeId, models })
    return nodeId
  }

  return {
    gateway,
    nodes,
    register,
    async connect(node) {
      const nodeId = node.nodeId ?? (await register([node.model]))
      return connectScriptedNode({ url: gateway.url, key: gateway.key, ...node, nodeId })
    },
    async startAgent(node) {
      const nodeId = await register(node.models)
      const agent = startTestAgent({
        gatewayUrl: gateway.url,
        apiKey: gateway.key,
        ...node,
        nodeId,
      })
      agents.push(agent)
      await Promise.race([untilConnected(agent), agent.done])
      return agent
    },
    async stop() {
      await Promise.all(agents.map((agent) => agent.stop()))
      await gateway.stop()
    },
  }
}

const BENCHMARK_TOKENS_PER_SECOND = 100

async function registerNode(
  { nodesStore, accountId }: TestGateway,
  { nodeId, models }: { readonly nodeId: string; readonly models: readonly string[] },
): Promise<void> {
  const at = Math.floor(Date.now() / 1000)
  await nodesStore.create({ nodeId, accountId, name: nodeId, createdAt: at })
  await nodesStore.saveHardware({ nodeId, accountId, hardware: HARDWARE, at })
  for (const model of models)
    await nodesStore.saveBenchmark({
      nodeId,
      accountId,
      model,
      tokensPerSecond: BENCHMARK_TOKENS_PER_SECOND,
      createdAt: at,
    })
  // The node was connected before, so it is not verified first.
  const connection = { nodeId, connectionId: randomUUID() }
  const begun = { ...connection, processId: randomUUID(), at, models, state: 'RUNNING' } as const
  await nodesStore.markConnected(begun)
  await nodesStore.markDisconnected(connection, { at, state: 'STOPPED' })
}

const HARDWARE = {
  gpu_model: null,
  vram: 0,
  gpu_count: 0,
  cpu_model: 'Test',
  cpu_count: 1,
  ram: 1024,
  power_limit: null,
  network_download_speed: null,
  network_upload_speed: null,
  operating_system: 'Test 1',
  version: '0.1.0',
}

async function untilConnected(agent: TestAgent): Promise<void> {
  while (agent.status().phase !== 'connected')
    await new Promise((resolve) => setTimeout(resolve, 5))
}
