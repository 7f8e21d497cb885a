import { homedir, hostname } from 'node:os'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import { nameOfMachine, readAgentConfig, readNodeAccess, readRunConfig } from '#src/agent/config.ts'
import { ConfigurationError } from '#src/runtime/read-settings.ts'

const GIVEN = { AFFIDAVIT_API_KEY: 'key', NODE_ID: 'a_b_c_d_e' }

it('readAgentConfig has a default for all but key and node', () => {
  expect(readAgentConfig({}, GIVEN)).toEqual({
    gatewayUrl: 'http://127.0.0.1:3000',
    apiKey: 'key',
    nodeId: 'a_b_c_d_e',
    nodeType: 'LLM',
    fetchesMedia: false,
    backend: { url: null, apiKey: null, silenceMs: 300_000, models: null },
    durationMs: 60_000,
    concurrency: 8,
    tokensPerSecondMin: 1,
    drainMs: 25_000,
    logLevel: 'info',
    traces: null,
  })
})

it('readAgentConfig asks for the server of a node that makes images, and for one model', () => {
  const draws = { ...GIVEN, NODE_TYPE: 'DIFFUSION' }
  const full = { ...draws, BACKEND_URL: 'http://127.0.0.1:7860', NODE_MODELS: 'sd' }
  expect(readAgentConfig({}, full)).toMatchObject({
    nodeType: 'DIFFUSION',
    backend: { models: ['sd'] },
  })
  expect(() => readAgentConfig({}, draws)).toThrow('BACKEND_URL: expected')
  expect(() => readAgentConfig({ NODE_MODELS: 'a,b' }, full)).toThrow(
    'NODE_MODELS: expected one model',
  )
  expect(() => readAgentConfig({ NODE_TYPE: 'SOUND' }, full)).toThrow('NODE_TYPE: expected')
  // Other commands need neither.
  expect(readNodeAccess({}, draws)).toMatchObject({ nodeId: 'a_b_c_d_e' })
})

it('readAgentConfig lets options go before the environment', () => {
  const environment = { ...GIVEN, BACKEND_URL: 'http://one:1', NODE_MODELS: 'a' }
  const options = { BACKEND_URL: 'http://two:2/v1/', NODE_MODELS: 'b, c/d ,', NODE_ID: undefined }
  expect(readAgentConfig(options, environment)).toMatchObject({
    nodeId: 'a_b_c_d_e',
    backend: { url: 'http://two:2', models: ['b', 'c/d'] },
  })
})

it('readAgentConfig tells all faults at once, and repeats no secret', () => {
  const faulty = {
    AFFIDAVIT_URL: 'http://example.org',
    AFFIDAVIT_API_KEY: 'hush hush',
    BACKEND_URL: 'http://user:hush@host',
    NODE_MODELS: ' , ',
    BENCHMARK_MS: '0',
    DRAIN_MS: '-1',
  }
  const read = () => readAgentConfig({}, faulty)
  expect(read).toThrow(ConfigurationError)
  for (const name of [...Object.keys(faulty), 'NODE_ID']) expect(read).toThrow(`${name}: expected`)
  expect(read).not.toThrow('hush')
})

it.each([
  ['http://127.0.0.1:3000', true],
  ['http://localhost', true],
  ['http://[::1]:80', true],
  ['https://example.org', true],
  ['http://10.0.0.1', false],
  ['http://localhost.example.org', false],
  ['ftp://localhost', false],
  ['https://example.org/?a=b', false],
  ['nonsense', false],
])("the address %s is taken as a gateway's: %s", (url, isTaken) => {
  const read = () => readNodeAccess({ AFFIDAVIT_URL: url }, GIVEN)
  if (isTaken) expect(read().gatewayUrl).toBe(url)
  else expect(read).toThrow('AFFIDAVIT_URL: expected')
})

it('an agent sends a key in the clear beyond this machine only when told to', () => {
  const settings = { AFFIDAVIT_URL: 'http://gateway:3000/v1', AFFIDAVIT_PLAIN_HTTP: 'true' }
  expect(readNodeAccess(settings, GIVEN).gatewayUrl).toBe('http://gateway:3000')
})

const KEY = { AFFIDAVIT_API_KEY: 'key' }

it('readRunConfig needs no node id: the node has a name, and a file keeps its id', () => {
  const { nodeId, nodeName, nodesFile } = readRunConfig({}, KEY)
  expect([nodeId, nodeName]).toEqual([null, nameOfMachine(hostname())])
  expect(nodesFile).toBe(join(homedir(), '.local/state/affidavit/nodes.json'))
})

it('readRunConfig takes the name, the file and the folder for state that are set', () => {
  const placed = { ...KEY, XDG_STATE_HOME: '/state', NODE_NAME: 'gpu 1' }
  expect(readRunConfig({}, placed)).toMatchObject({
    nodeName: 'gpu 1',
    nodesFile: '/state/affidavit/nodes.json',
  })
  const named = { ...placed, NODES_FILE: '/nodes.json', NODE_ID: 'a_b' }
  expect(readRunConfig({ NODE_NAME: 'gpu 2' }, named)).toMatchObject({
    nodeId: 'a_b',
    nodeName: 'gpu 2',
    nodesFile: '/nodes.json',
  })
  // A relative one counts as unset (XDG Base Directory Specification).
  const relative = readRunConfig({}, { ...KEY, XDG_STATE_HOME: 'state' })
  expect(relative.nodesFile).toBe(readRunConfig({}, KEY).nodesFile)
})

it.each([
  ['gpu-box.example.org', 'gpu-box.example.org'],
  ['pc', 'node-pc'],
  ['', 'node-'],
  ['a'.repeat(64), 'a'.repeat(40)],
])('the machine %j has a node whose name fits: %s', (host, name) => {
  expect(nameOfMachine(host)).toBe(name)
  expect(readRunConfig({ NODE_NAME: name }, KEY).nodeName).toBe(name)
})
