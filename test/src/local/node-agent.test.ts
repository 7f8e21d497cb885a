import { readFile, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import type { AgentReady } from '#src/agent/run-agent.ts'
import { NODE_FILE, startNodeAgent } from '#src/local/node-agent.ts'
import type { SupervisedProcess } from '#src/local/supervised-process.ts'
import { createLogger } from '#src/observability/logger.ts'
import { folderOfTest } from '../../support/folders.ts'
import { isAlive } from '../../support/is-alive.ts'
import {
  answerWith,
  type BackendScript,
  type ScriptedBackend,
  startScriptedBackend,
  textChunk,
  writeEvents,
} from '../../support/scripted-backend.ts'
import {
  NODE_ID,
  NODE_KEY,
  type ScriptedNodeGateway,
  startScriptedNodeGateway,
} from '../../support/scripted-node-gateway.ts'

let folder = ''
let gateway: ScriptedNodeGateway
let backend: ScriptedBackend
let script: BackendScript = answerWith('a', 'b')
let lines: string[] = []
const running: SupervisedProcess<AgentReady>[] = []

beforeEach(async () => {
  folder = folderOfTest()
  lines = []
  script = answerWith('a', 'b')
  gateway = await startScriptedNodeGateway()
  backend = await startScriptedBackend((...call) => script(...call))
})
afterEach(async () => {
  await Promise.all(running.splice(0).map((agent) => agent.stop()))
  await Promise.all([gateway.stop(), backend.stop()])
})

async function start(): Promise<SupervisedProcess<AgentReady>> {
  const log = createLogger({
    level: 'debug',
    destination: { write: (line) => void lines.push(line) },
  })
  const agent = await startNodeAgent(
    { dataFolder: folder, shutdownGraceMs: 2_000, agentVariables: {}, logLevel: 'debug' },
    { gatewayUrl: gateway.url, apiKey: NODE_KEY, backendUrl: backend.url },
    log,
  )
  running.push(agent)
  await expect.poll(() => gateway.nodes.length).toBeGreaterThan(0)
  return agent
}

const PROMPT = { model: 'model-a', messages: [{ role: 'user', content: 'planted-prompt' }] }

describe('startNodeAgent', () => {
  it('startNodeAgent makes a node on first start, keeps its id for the user alone, and takes it on the next', async () => {
    const agent = await start()
    expect(agent.ready).toEqual({ kind: 'ready', nodeId: NODE_ID })
    expect(await readFile(join(folder, NODE_FILE), 'utf8')).toBe(`${NODE_ID}\n`)
    expect((await stat(join(folder, NODE_FILE))).mode & 0o777).toBe(0o600)
    await agent.stop()
    await start()
    expect(gateway.calls.filter(({ path }) => path === '/v1/dashboard/node')).toHaveLength(1)
  })

  it('startNodeAgent makes another node when the gateway does not know the one that is kept', async () => {
    await writeFile(join(folder, NODE_FILE), 'gone_gone_gone_gone_gone\n')
    const kept = gateway.known.node
    gateway.known.node = null
    const starting = start()
    await expect
      .poll(() => gateway.calls.some(({ path }) => path === '/v1/dashboard/node'))
      .toBe(true)
    gateway.known.node = kept
    await starting
    expect(await readFile(join(folder, NODE_FILE), 'utf8')).toBe(`${NODE_ID}\n`)
  })
})

describe("the agent's process", () => {
  it("the agent's process finishes what runs when it is stopped, and ends with code 0", async () => {
    const agent = await start()
    const pid = agent.pid() ?? 0
    script = (response) => {
      writeEvents(response, [textChunk('planted-answer')])
      setTimeout(() => {
        writeEvents(response, [textChunk('', 'stop'), '[DONE]'])
        response.end()
      }, 300)
    }
    gateway.nodes[0]?.send({ id: 'r1', model: 'model-a', chat_request: PROMPT })
    await expect.poll(() => gateway.nodes[0]?.frames.length).toBe(1)
    await agent.stop()
    expect(gateway.nodes[0]?.frames.at(-1)).toMatchObject({ request_id: 'r1', status: 2 })
    expect(isAlive(pid)).toBe(false)
    expect(lines.join('')).toContain('"stopped"')
    expect(lines.join('')).not.toMatch(/planted/)
  })
})
