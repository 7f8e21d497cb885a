import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { childEnvironment } from '../../../support/child-environment.ts'
import { runCli } from '../../../support/run-cli.ts'
import { runCommandWith } from '../../../support/run-command.ts'
import {
  answerWith,
  type ScriptedBackend,
  startScriptedBackend,
} from '../../../support/scripted-backend.ts'
import {
  NODE_ID,
  NODE_KEY,
  type ScriptedNodeGateway,
  startScriptedNodeGateway,
} from '../../../support/scripted-node-gateway.ts'

const MAIN = join(import.meta.dirname, '../../../../src/cli/main.ts')

let gateway: ScriptedNodeGateway
let backend: ScriptedBackend
let variables: Record<string, string> = {}

beforeEach(async () => {
  gateway = await startScriptedNodeGateway()
  backend = await startScriptedBackend(answerWith('a', 'b'))
  variables = {
    AFFIDAVIT_URL: gateway.url,
    AFFIDAVIT_API_KEY: NODE_KEY,
    NODE_ID,
    BACKEND_URL: backend.url,
    BENCHMARK_MS: '100',
  }
})
afterEach(() => Promise.all([gateway.stop(), backend.stop()]))

/** `run` stays, and listens to signals: so it is a process. */
const node = (...words: string[]) =>
  words[0] === 'run'
    ? runCli(['node', ...words], { variables })
    : runCommandWith(variables, 'node', ...words)

describe('affidavit node', () => {
  it('the node command makes a node', async () => {
    expect(await node('create', 'my node')).toEqual({ code: 0, stdout: `${NODE_ID}\n`, stderr: '' })
    expect(gateway.calls[0]?.body).toEqual({ node_name: 'my node' })
  })

  it('the node command shows what the gateway knows of a node, for people and for programs', async () => {
    gateway.known.node = {
      ...{
        node_id: NODE_ID,
        name_alias: 'my\u001b[31m node',
        status: 'Running',
        run_duration_seconds: 3725,
      },
      ...{ vram: null, node_created_at: 1_700_000_000 },
    }
    const shown = await node('status')
    expect(shown.code).toBe(0)
    expect(shown.stdout.split('\n')).toEqual([
      `node_id               ${NODE_ID}`,
      'name_alias            my\\u{1b}[31m node',
      'status                Running',
      'run_duration_seconds  1 h 2 min',
      'vram                  -',
      'node_created_at       2023-11-14 22:13:20 UTC',
      '',
    ])
    expect(JSON.parse((await node('status', '--json')).stdout)).toEqual(gateway.known.node)
  })

  it('the node command shows what a node has served', async () => {
    expect((await node('stats')).stdout).toMatch(/^requests_served +7$/m)
    expect(JSON.parse((await node('stats', '--json')).stdout)).toMatchObject({ requests_served: 7 })
  })

  it('the node command measures a backend, and tells the gateway when asked to', async () => {
    const run = await node('benchmark', '--json')
    expect(run.code).toBe(0)
    const { single, total } = JSON.parse(run.stdout).tokens_per_second['model-a']
    expect(single).toBeGreaterThan(0)
    expect(total).toBeGreaterThan(0)
    expect(gateway.calls).toEqual([])
    expect((await node('benchmark', '--save')).stdout).toMatch(/^model-a +[\d.]+ tokens\/s, /)
    expect(gateway.known.benchmarks.get('model-a')).toBeGreaterThan(0)
  })

  it.each([
    ['a node that is not known', ['status'], {}, 'knows no node'],
    [
      'a key that is not valid',
      ['stats'],
      { AFFIDAVIT_API_KEY: 'wrong' },
      '401 invalid_credentials',
    ],
    ['a gateway that is away', ['status'], { AFFIDAVIT_URL: 'http://127.0.0.1:1' }, 'ECONNREFUSED'],
    [
      'a backend that is away',
      ['benchmark'],
      { BACKEND_URL: 'http://127.0.0.1:1' },
      'ECONNREFUSED',
    ],
    ['a model that is not offered', ['benchmark', '--model', 'model-z'], {}, 'model-z'],
    ['an agent whose key is not valid', ['run'], { AFFIDAVIT_API_KEY: 'wrong' }, 'not valid'],
  ])('the node command exits 1 for %s, without a stack', async (_, words, more, message) => {
    gateway.known.node = null
    variables = { ...variables, ...more }
    const { code, stderr } = await node(...words)
    expect(code).toBe(1)
    expect(stderr).toContain(message)
    expect(stderr).not.toContain('    at ')
    expect(stderr).not.toContain(NODE_KEY)
  })

  it('the node command exits 2 for a configuration with faults, telling all of them', async () => {
    const { code, stderr } = await runCommandWith(
      {},
      'node',
      'run',
      '--url',
      'nonsense',
      '--benchmark-ms',
      '1',
    )
    expect(code).toBe(2)
    for (const name of ['AFFIDAVIT_URL', 'AFFIDAVIT_API_KEY', 'NODE_ID', 'BENCHMARK_MS'])
      expect(stderr).toContain(`${name}: expected`)
  })

  it('the node command exits 2 for a command it does not have', async () => {
    expect((await node('dance')).code).toBe(2)
  })
})

describe('affidavit node run', () => {
  let child: ChildProcess | null = null
  afterEach(() => {
    child?.kill('SIGKILL')
  })

  it.each(['SIGTERM', 'SIGINT'] as const)(
    'an agent that node run started serves until %s, and exits 0',
    async (signal) => {
      child = spawn(process.execPath, [MAIN, 'node', 'run'], {
        env: { ...childEnvironment(), ...variables },
        stdio: ['ignore', 'pipe', 'pipe'],
      })
      let output = ''
      for (const stream of [child.stdout, child.stderr])
        stream?.setEncoding('utf8').on('data', (text: string) => {
          output += text
        })
      await expect.poll(() => gateway.nodes.length).toBe(1)
      const request = { model: 'model-a', messages: [{ role: 'user', content: 'planted-prompt' }] }
      gateway.nodes[0]?.send({ id: 'r1', model: 'model-a', chat_request: request })
      await expect.poll(() => gateway.nodes[0]?.frames.at(-1)?.status).toBe(2)
      child.kill(signal)
      const [code] = await once(child, 'close')
      expect(code).toBe(0)
      expect(await gateway.nodes[0]?.closed).toBe(1000)
      expect(output).toContain('connected')
      expect(output).not.toMatch(/planted/)
    },
  )
})
