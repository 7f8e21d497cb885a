import { afterEach, beforeEach, expect } from 'vitest'
import { startTestAgent, type TestAgent, type TestAgentOptions } from './run-agent.ts'
import {
  answerWith,
  type BackendScript,
  type ScriptedBackend,
  startScriptedBackend,
} from './scripted-backend.ts'
import {
  NODE_ID,
  NODE_KEY,
  type NodeSocket,
  type ScriptedNodeGateway,
  startScriptedNodeGateway,
} from './scripted-node-gateway.ts'

/**
 * Agents between a scripted gateway and a scripted backend of the models `model-a` and `model-b`.
 */
export type AgentStage = {
  gateway: ScriptedNodeGateway
  backend: ScriptedBackend
  /** How the backend answers; `a`, `b` at the beginning of each test. */
  script: BackendScript
  start(more?: Partial<TestAgentOptions>): TestAgent
  /** Starts an agent whose models have their benchmarks, and gives its socket. */
  connect(
    more?: Partial<TestAgentOptions>,
  ): Promise<{ readonly agent: TestAgent; readonly node: NodeSocket }>
  /** The node that dialled in as number `index`, once it did. */
  nodeAt(index: number): Promise<NodeSocket>
}

/** Head of a control frame for the node. */
export const CONTROL = { protocol_version: '1.0', message_type: 1, node_id: NODE_ID }

/** Sets a new stage for each test of a file, and clears it afterwards. */
export function useAgentStage(): AgentStage {
  const agents: TestAgent[] = []
  const stage = {} as AgentStage
  beforeEach(async () => {
    stage.script = answerWith('a', 'b')
    stage.gateway = await startScriptedNodeGateway()
    stage.backend = await startScriptedBackend(
      (...call) => stage.script(...call),
      ['model-a', 'model-b'],
    )
  })
  afterEach(async () => {
    await Promise.all(agents.splice(0).map((agent) => agent.stop()))
    await Promise.all([stage.gateway.stop(), stage.backend.stop()])
  })
  const start = (more: Partial<TestAgentOptions> = {}) => {
    const agent = startTestAgent({
      gatewayUrl: stage.gateway.url,
      apiKey: NODE_KEY,
      nodeId: NODE_ID,
      backendUrl: stage.backend.url,
      ...more,
    })
    agents.push(agent)
    return agent
  }
  const nodeAt = async (index: number) => {
    await expect.poll(() => stage.gateway.nodes.length).toBeGreaterThan(index)
    const node = stage.gateway.nodes[index]
    if (node === undefined) throw new Error('expected a node')
    return node
  }
  const connect = async (more: Partial<TestAgentOptions> = {}) => {
    for (const model of ['model-a', 'model-b']) stage.gateway.known.benchmarks.set(model, 100)
    const agent = start(more)
    return { agent, node: await nodeAt(0) }
  }
  return Object.assign(stage, { start, connect, nodeAt })
}

/** Sends a chat frame to a node. */
export function chat(node: NodeSocket, id: string, body: object = {}, model = 'model-a'): void {
  node.send({
    id,
    model,
    chat_request: { model, messages: [{ role: 'user', content: 'hi' }], ...body },
  })
}

/** The frames of one request, the last of them, and its status. */
export const framesOf = (node: NodeSocket, id: string) =>
  node.frames.filter(({ request_id: of }) => of === id)
export const lastOf = (node: NodeSocket, id: string) => framesOf(node, id).at(-1)
export const statusOf = (node: NodeSocket, id: string) => lastOf(node, id)?.status
