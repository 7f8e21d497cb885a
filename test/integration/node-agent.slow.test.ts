import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { rm } from 'node:fs/promises'
import { join } from 'node:path'
import OpenAI from 'openai'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { listTree, nameProcess } from '../bench/processes.ts'
import { type Affidavit, makeDataFolder, startAffidavit } from '../support/affidavit.ts'
import { childEnvironment } from '../support/child-environment.ts'
import { runCli } from '../support/run-cli.ts'
import { answerWith, startScriptedBackend } from '../support/scripted-backend.ts'

const MAIN = join(import.meta.dirname, '../../src/cli/main.ts')

type Members = Readonly<Record<string, unknown>>

let service: Affidavit
let dataFolder = ''

beforeAll(async () => {
  dataFolder = await makeDataFolder()
  service = await startAffidavit({ dataFolder })
})
afterAll(async () => {
  await service.stop()
  await service.remove()
})

const clientOf = ({ url, apiKey }: Affidavit) =>
  new OpenAI({ baseURL: `${url}/v1`, apiKey, maxRetries: 0 })
const ask = (content: string) => ({
  model: 'demo/echo',
  messages: [{ role: 'user' as const, content }],
})

/** The agent's pid, among the children of the gateway. */
function agentPid(): number | null {
  return listTree(service.pid).find((pid) => nameProcess(pid) === 'agent/main.ts') ?? null
}

async function complete(content: string): Promise<string | null | undefined> {
  const answer = await clientOf(service).chat.completions.create(ask(content))
  return answer.choices[0]?.message.content
}

describe('npm start', () => {
  it('npm start serves plain chat with every model of the backend from the first call, whole and streamed', async () => {
    expect(await complete('planted-prompt')).toBe('[demonstration] You said: planted-prompt')
    const streamed = await clientOf(service)
      .chat.completions.stream({ ...ask('hello'), model: 'demo/tools' })
      .finalChatCompletion()
    expect(streamed.choices[0]?.message.content).toContain('[demonstration]')
    for (const model of ['demo/lorem', 'demo/refusal'])
      expect(
        await clientOf(service).chat.completions.create({ ...ask('hello'), model }),
      ).toMatchObject({
        model,
      })
  })

  it('npm start has a node, and the command line shows its status and what it served', async () => {
    const variables = {
      AFFIDAVIT_URL: service.url,
      AFFIDAVIT_API_KEY: service.apiKey,
      NODE_ID: service.nodeId,
    }
    const status = await runCli(['node', 'status', '--json'], { variables })
    expect(JSON.parse(status.stdout)).toMatchObject({ node_id: service.nodeId, status: 'Running' })
    await expect
      .poll(
        async () =>
          JSON.parse((await runCli(['node', 'stats', '--json'], { variables })).stdout)
            .requests_served,
        { timeout: 30_000 },
      )
      .toBeGreaterThan(3)
  })

  it('a second machine contributes by one command, and its node is listed by its name', async () => {
    const backend = await startScriptedBackend(answerWith('a', 'b'))
    const variables = {
      AFFIDAVIT_URL: service.url,
      AFFIDAVIT_API_KEY: service.apiKey,
      NODES_FILE: join(dataFolder, 'nodes.json'),
      NODE_NAME: 'second machine',
    }
    const listNodes = async () => {
      const { stdout } = await runCli(['node', 'list', '--json'], { variables })
      return (JSON.parse(stdout) as Members[]).filter(
        (node) => node.name_alias === 'second machine',
      )
    }
    const runUntilConnected = async () => {
      const run = spawn(process.execPath, [MAIN, 'node', 'run'], {
        env: { ...childEnvironment(), ...variables, BACKEND_URL: backend.url, BENCHMARK_MS: '100' },
        stdio: 'ignore',
      })
      try {
        await expect.poll(listNodes).toMatchObject([{ is_connected: true }])
      } finally {
        run.kill('SIGTERM')
      }
      expect((await once(run, 'close'))[0]).toBe(0)
    }
    try {
      await runUntilConnected()
      await rm(variables.NODES_FILE)
      await expect.poll(listNodes).toMatchObject([{ is_connected: false }])
      await runUntilConnected()
      expect(await listNodes()).toHaveLength(1)
      const status = await runCli(['node', 'status'], { variables })
      expect(status.stdout).toMatch(/^Name +second machine$/m)
    } finally {
      await backend.stop()
    }
  })

  it('the service serves again after its agent was killed', async () => {
    const before = agentPid()
    if (before === null) throw new Error('expected an agent')
    process.kill(before, 'SIGKILL')
    await expect.poll(agentPid, { timeout: 30_000 }).not.toBe(before)
    await expect
      .poll(() => complete('again').catch(() => null), { timeout: 20_000 })
      .toBe('[demonstration] You said: again')
  })

  it('the service stops in good order, and keeps its node for the next start', async () => {
    const { nodeId, output } = service
    expect(await service.stop()).toBe(0)
    expect(agentPid()).toBeNull()
    expect(output().stderr).not.toContain('planted-prompt')
    expect(output().stderr).not.toContain(service.apiKey)
    service = await startAffidavit({ dataFolder })
    expect(service.nodeId).toBe(nodeId)
    expect(await complete('hello')).toBe('[demonstration] You said: hello')
  })
})
