import { afterEach, beforeEach, describe, expect, it } from 'vitest'
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

/** A node as it is listed. */
const STOPPED = { node_id: NODE_ID, name_alias: 'gpu-1', status: 'Stopped', is_connected: false }

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

// Programs of node-agent.slow.test.ts and install.slow.test.ts run `node run`.
const node = (...words: string[]) => runCommandWith(variables, 'node', ...words)

describe('affidavit node', () => {
  it('the node command makes a node', async () => {
    expect(await node('create', 'my node')).toEqual({ code: 0, stdout: `${NODE_ID}\n`, stderr: '' })
    expect(gateway.calls[0]?.body).toEqual({ node_name: 'my node' })
  })

  it('the node command shows what the gateway knows of a node, for people and for programs', async () => {
    gateway.known.node = {
      node_id: NODE_ID,
      name_alias: 'my\u001b[31m node',
      status: 'Running',
      gpu_model: null,
      vram: 24_576,
      gpu_count: 1,
      cpu_count: 16,
      ram: 64_205,
      power_limit: 450,
      network_download_speed: 1000,
      run_duration_seconds: 3725,
      node_created_at: 1_700_000_000,
      another_member: 7,
    }
    const shown = await node('status')
    expect(shown.code).toBe(0)
    expect(shown.stdout.split('\n')).toEqual([
      `Node id                  ${NODE_ID}`,
      'Name                     my\\u{1b}[31m node',
      'State                    Running',
      'GPU                      -',
      'GPU memory               24 GiB',
      'Number of GPUs           1 GPU',
      'Processor cores          16 cores',
      'Memory                   62.7 GiB',
      'GPU power limit          450 W',
      'Network card, receiving  1,000 Mbit/s',
      'Connected for            1 h 2 min',
      'Created at               2023-11-14 22:13:20 UTC',
      'another_member           7',
      '',
    ])
    expect(JSON.parse((await node('status', '--json')).stdout)).toEqual(gateway.known.node)
  })

  it('the node command shows what a node has served, each figure with its unit', async () => {
    const usage = { prompt_tokens: 12, completion_tokens: 1, total_tokens: 13 }
    gateway.known.stats = {
      requests_served: 1207,
      requests_served_day: 1,
      average_time_to_first_token: 0.4123,
      benchmark_tokens_per_second: 84.53,
      benchmark_model_name: 'model-a',
      benchmark_created_at: 1_700_000_000,
      completed_inferences: [{ model_name: 'model-a', ...usage, created_at: 1_700_000_000 }],
    }
    const lines = (await node('stats')).stdout.replaceAll(/ {2,}/g, '  ').split('\n')
    expect(lines).toEqual([
      'Served  1,207 requests',
      'Served in the last 24 hours  1 request',
      'Time to the first token, average of the last 24 hours  412 ms',
      'Newest benchmark  84.5 tokens/s',
      'Newest benchmark, model  model-a',
      'Newest benchmark, made at  2023-11-14 22:13:20 UTC',
      'Last answers  1 answer',
      '  model-a, 12 prompt tokens, 1 answer token, 13 tokens in all, 2023-11-14 22:13:20 UTC',
      '',
    ])
    expect(JSON.parse((await node('stats', '--json')).stdout)).toEqual(gateway.known.stats)
  })

  it("the node command lists the account's nodes, archived nodes only when asked to", async () => {
    const listed = { ...STOPPED, requests_served: 3, requests_served_day: 2 }
    gateway.known.listed.push(
      {
        ...listed,
        status: 'Running',
        is_connected: true,
        run_duration_seconds: 60,
        models: [{ model_name: 'model-a', tokens_per_second: 84.53 }],
      },
      { ...listed, node_id: 'b', name_alias: 'gpu-\u001b[31m2', benchmark_tokens_per_second: 9 },
      { ...listed, node_id: 'c', is_archived: true },
    )
    const shown = await node('list')
    expect([shown.code, shown.stderr]).toEqual([0, ''])
    expect(shown.stdout.split('\n').map((line) => line.split(/ {2,}/))).toEqual([
      ['NAME', 'ID', 'CONNECTED', 'STATE', 'SERVED', 'LAST 24 HOURS', 'MODELS'],
      [
        'gpu-1',
        NODE_ID,
        'for 1 min',
        'Running',
        '3 requests',
        '2 requests',
        'model-a (84.5 tokens/s)',
      ],
      [
        'gpu-\\u{1b}[31m2',
        'b',
        'no',
        'Stopped',
        '3 requests',
        '2 requests',
        'none now; measured at 9 tokens/s',
      ],
      [''],
    ])
    const all = await node('list', '--all')
    expect(all.stdout).toMatch(/^gpu-1 +c +no +Archived/m)
    expect(JSON.parse((await node('list', '--json')).stdout)).toEqual(
      gateway.known.listed.slice(0, 2),
    )
  })

  it('the node command asks about the node of its name when no id is set', async () => {
    const { NODE_ID: _, ...others } = variables
    variables = { ...others, NODES_FILE: '/nowhere/nodes.json', NODE_NAME: 'gpu-1' }
    expect((await node('status')).stderr).toContain('no node called gpu-1')
    gateway.known.listed.push({ ...STOPPED, node_id: 'found_by_name' })
    expect((await node('status')).code).toBe(0)
    expect((await node('stats')).code).toBe(0)
    expect((await node('benchmark', '--save')).code).toBe(0)
    const paths = gateway.calls.map(({ path }) => path)
    expect(paths).toContain('/v1/node/info?node_id=found_by_name')
    expect(paths).toContain('/v1/node/stats?node_id=found_by_name')
    expect((await node('status', '--name', 'gpu-2')).stderr).toContain('no node called gpu-2')
  })

  it('the node command measures a backend, and tells the gateway when asked to', async () => {
    const run = await node('benchmark', '--json')
    expect(run.code).toBe(0)
    const { single, total } = JSON.parse(run.stdout).tokens_per_second['model-a']
    expect(single).toBeGreaterThan(0)
    expect(total).toBeGreaterThan(0)
    expect(gateway.calls).toEqual([])
    expect((await node('benchmark', '--save')).stdout).toMatch(
      /^MODEL +8 REQUESTS AT ONCE +ONE REQUEST\nmodel-a +[\d.,]+ tokens\/s +[\d.,]+ tokens\/s\n$/,
    )
    expect(gateway.known.benchmarks.get('model-a')).toBeGreaterThan(0)
  })

  it.each([
    ['a node that is not known', ['status'], {}, 'knows no node'],
    ['a wrong key', ['stats'], { AFFIDAVIT_API_KEY: 'wrong' }, '401 invalid_credentials'],
    ['a gateway that is away', ['status'], { AFFIDAVIT_URL: 'http://127.0.0.1:2' }, 'ECONNREFUSED'],
    ['an absent backend', ['benchmark'], { BACKEND_URL: 'http://127.0.0.1:1' }, 'ECONNREFUSED'],
    ['a model that is not offered', ['benchmark', '--model', 'model-z'], {}, 'model-z'],
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
    const words = ['--url', 'nonsense', '--benchmark-ms', '1', '--name', 'ab']
    const { code, stderr } = await runCommandWith({}, 'node', 'run', ...words)
    expect(code).toBe(2)
    for (const name of ['AFFIDAVIT_URL', 'AFFIDAVIT_API_KEY', 'NODE_NAME', 'BENCHMARK_MS'])
      expect(stderr).toContain(`${name}: expected`)
  })
})
