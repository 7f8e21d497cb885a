import { randomBytes, randomUUID } from 'node:crypto'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { checkImages } from '../../src/images/checked-images.ts'
import { createFileStore } from '../../src/images/file-store.ts'
import { createImages, type Images } from '../../src/images/images.ts'
import { createNodeImages } from '../../src/images/node-images.ts'
import { createHub, type Hub } from '../../src/nodes/hub.ts'
import { NODE_LIMITS, type NodeLimits } from '../../src/nodes/limits.ts'
import type { AppSettings } from '../../src/start/app-routes.ts'
import { startGateway, type TestGateway } from './gateway.ts'
import { startTestAgent, type TestAgent, type TestAgentOptions } from './run-agent.ts'
import { connectScriptedNode, type ScriptedNode, type ScriptedNodeOptions } from './scripted-node.ts'

/** A gateway with its real nodes' side, over real sockets and a real database, to which nodes are connected by the test. */
export type PlainStage = {
  readonly gateway: TestGateway
  readonly nodes: Hub
  /** Registers a node with hardware and a benchmark for each model, as one that was RUNNING before. Gives its id. */
  register(models: readonly string[]): Promise<string>
  /** Connects a scripted node. */
  connect(node: StagedNode): Promise<ScriptedNode>
  /** Registers a node and starts an agent for it, in front of the backend; resolves when it is connected. */
  startAgent(node: StagedAgent): Promise<TestAgent>
  /** Ends the agents, the nodes and the gateway. */
  stop(): Promise<void>
}

/** A node that follows the protocol, as its script says. With a `nodeId` it is registered already. */
export type StagedNode = Partial<ScriptedNodeOptions> & { readonly model: string }

/** An agent in front of a backend. */
export type StagedAgent = Omit<Partial<TestAgentOptions>, 'nodeId' | 'models'> & {
  readonly backendUrl: string
  readonly models: readonly string[]
}

/** Opens a stage. `limits` are on top of the defaults. */
export async function openPlainStage(
  options: { readonly limits?: Partial<NodeLimits>; readonly settings?: Partial<AppSettings> } = {},
): Promise<PlainStage> {
  const opened: { nodes?: Hub } = {}
  const folder = await mkdtemp(join(tmpdir(), 'affidavit-images-'))
  const gateway = await startGateway({
    upstream: { images: imagesOf(() => opened.nodes, folder) },
    ...(options.settings === undefined ? {} : { settings: options.settings }),
    nodes: ({ nodesStore, inferences, keys, log }) => {
      opened.nodes = createHub({
        nodes: nodesStore,
        inferences,
        authenticate: keys.authenticate,
        limits: { ...NODE_LIMITS, ...options.limits },
        now: () => performance.timeOrigin + performance.now(),
        random: Math.random,
        makeId: randomUUID,
        checkImage: (images) => checkImages(images, { n: 1, size: null }),
        log,
      })
      return opened.nodes
    },
  })
  const { nodes } = opened
  if (nodes === undefined) throw new Error('expected the gateway to make its nodes')
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
      const agent = startTestAgent({ gatewayUrl: gateway.url, apiKey: gateway.key, ...node, nodeId })
      agents.push(agent)
      await Promise.race([untilConnected(agent), agent.done])
      return agent
    },
    async stop() {
      await Promise.all(agents.map((agent) => agent.stop()))
      await gateway.stop()
      await rm(folder, { recursive: true, force: true })
    },
  }
}

/** Images of nodes that are made later, kept in a folder. */
function imagesOf(nodes: () => Hub | undefined, folder: string): Images {
  const dispatcher = () => {
    const found = nodes()?.images
    if (found === undefined) throw new Error('expected the gateway to make its nodes')
    return found
  }
  const source = createNodeImages({
    dispatch: (call) => dispatcher().dispatch(call),
    serves: (model) => dispatcher().serves(model),
    isKnown: (model) => dispatcher().isKnown(model),
    models: () => dispatcher().models(),
    fits: (request) => dispatcher().fits(request),
  })
  const store = createFileStore({
    ...{ folder, ttlMs: 60_000, bytesMax: 100_000_000 },
    ...{ now: Date.now, random: randomBytes },
  })
  return createImages({ sources: [source], store, now: Date.now })
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
      ...{ nodeId, accountId, model, tokensPerSecond: BENCHMARK_TOKENS_PER_SECOND, createdAt: at },
    })
  await nodesStore.setState(nodeId, 'STOPPED')
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
  while (agent.status().phase !== 'connected') await new Promise((resolve) => setTimeout(resolve, 5))
}
