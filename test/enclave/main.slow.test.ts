import { type ChildProcess, spawn } from 'node:child_process'
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import http from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { CALL_HEADER, ENCLAVE_PATHS } from '#enclave/protocol/enclave-api.ts'
import { type NsmServer, serveSoftwareNsm } from '#src/local/nsm/nsm-server.ts'
import { childEnvironment } from '../support/child-environment.ts'
import { completionOf, send, wholeAnswer } from '../support/hostile-answers.ts'
import {
  type HostileProvider,
  type Step,
  startHostileProvider,
} from '../support/hostile-provider.ts'
import { until } from '../support/until.ts'
import { readAnswer } from './support/test-enclave.ts'

const main = join(import.meta.dirname, '../../enclave/main.ts')
let folder: string
let socketPath: string
let nsm: NsmServer
let provider: HostileProvider
let script: () => Iterable<Step>
const children: ChildProcess[] = []

beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), 'affidavit-'))
  socketPath = join(folder, 's')
  nsm = await serveSoftwareNsm({
    socketPath: join(folder, 'n'),
    rootFile: join(folder, 'root.pem'),
  })
  script = () => [send(wholeAnswer({ body: JSON.stringify(completionOf('planted-answer')) }))]
  provider = await startHostileProvider({ answer: () => script() })
})

afterEach(async () => {
  for (const child of children.splice(0)) child.kill('SIGKILL')
  await provider.close()
  await nsm.close()
  rmSync(folder, { recursive: true, force: true })
})

/** A process of enclave/main.ts, with everything it prints. */
function run(
  environment: Readonly<Record<string, string>> = {},
  options: { readonly ipc?: boolean } = {},
) {
  const child = spawn(process.execPath, [main], {
    stdio: ['ignore', 'pipe', 'pipe', ...(options.ipc ? (['ipc'] as const) : [])],
    env: {
      ...childEnvironment(),
      ENCLAVE_SOCKET: socketPath,
      NSM_SOCKET: nsm.socketPath,
      CHAIN_ID: '31337',
      CONTRACT_ADDRESS: '0x5fbdb2315678afecb367f032d93f642f64180aa3',
      DEMO_PROVIDER_ORIGIN: provider.origin,
      ...environment,
    },
  })
  children.push(child)
  const printed = { stdout: '', stderr: '' }
  for (const name of ['stdout', 'stderr'] as const)
    child[name]?.on('data', (text: Buffer) => {
      printed[name] += text.toString()
    })
  const exited = new Promise<number | null>((resolve) => child.once('exit', resolve))
  const ready = async () => {
    await until('it is ready', () => printed.stdout.includes('\n') || child.exitCode !== null)
    if (child.exitCode !== null) throw new Error(`exited: ${printed.stderr}`)
    return JSON.parse(printed.stdout) as Readonly<Record<string, unknown>>
  }
  return { child, printed, exited, ready }
}

function complete() {
  const call = { context: 'planted-context', provider: 'demo', credential: 'planted-credential' }
  const request = http.request({
    socketPath,
    method: 'POST',
    path: ENCLAVE_PATHS.completions,
    headers: { [CALL_HEADER]: Buffer.from(JSON.stringify(call)).toString('base64url') },
  })
  request.end('{"model":"demo/echo","messages":[{"role":"user","content":"planted-prompt"}]}')
  return readAnswer(request)
}

describe('the enclave process', () => {
  it('the enclave process prints nothing of requests, answers, contexts and credentials, and no key', async () => {
    const { child, printed, exited, ready } = run({ SHUTDOWN_GRACE_MS: '0' })
    await ready()
    await complete()
    script = () => [send('HTTP/1.1 200 OK\r\n\r\n{"planted-answer'), { kind: 'end' }]
    await complete()
    child.kill('SIGTERM')
    expect(await exited).toBe(0)
    expect(printed.stderr).toContain('stopped')
    expect(printed.stdout + printed.stderr).not.toContain('planted')
  })

  it('the enclave process reports all faults of its configuration at once and exits with 1', async () => {
    const { printed, exited } = run({ ENCLAVE_SOCKET: '', CHAIN_ID: 'one', NSM: 'tpm' })
    expect(await exited).toBe(1)
    expect(printed.stdout).toBe('')
    for (const name of ['ENCLAVE_SOCKET', 'CHAIN_ID', 'NSM'])
      expect(printed.stderr).toContain(`"fault":"${name}: `)
  })

  it('the enclave process exits with 1 without the module it is told to use', async () => {
    const { printed, exited } = run({ NSM: 'device', NSM_SOCKET: '' })
    expect(await exited).toBe(1)
    expect(printed.stderr).toContain('"event":"not started","code":"Unavailable"')
  })

  it.each(['SIGTERM', 'SIGINT'] as const)(
    'the enclave process on %s finishes what runs, removes its socket and exits with 0',
    async (signal) => {
      const { child, exited, ready, printed } = run({ SHUTDOWN_GRACE_MS: '1500' })
      await ready()
      script = () => [
        { kind: 'pause', durationMs: 300 },
        send(wholeAnswer({ body: JSON.stringify(completionOf('x')) })),
      ]
      const running = complete()
      await until('the provider is asked', () => provider.requests.length > 0)
      child.kill(signal)
      child.kill(signal)
      expect((await running).status).toBe(200)
      expect(await exited).toBe(0)
      expect(printed.stderr).toContain('"event":"stopped","unacknowledged":1')
      expect(existsSync(socketPath)).toBe(false)
    },
  )

  it('the enclave process ends with the gateway that started it', async () => {
    const { child, exited, ready, printed } = run({}, { ipc: true })
    await ready()
    child.disconnect()
    expect(await exited).toBe(1)
    expect(printed.stderr).toContain('gateway gone')
  })

  it.each(['uncaughtException', 'unhandledRejection'])(
    'the enclave process dies of an %s rather than sign on',
    async (kind) => {
      const preload = join(folder, 'preload.mjs')
      const fault =
        kind === 'uncaughtException'
          ? "throw new Error('planted')"
          : "Promise.reject(new Error('planted'))"
      writeFileSync(preload, `process.on('SIGUSR2', () => { setImmediate(() => { ${fault} }) })`)
      const { child, exited, ready, printed } = run({ NODE_OPTIONS: `--import ${preload}` })
      await ready()
      child.kill('SIGUSR2')
      expect(await exited).toBe(1)
      expect(printed.stderr).toMatch(/"event":"(uncaught exception|unhandled rejection)"/)
      expect(printed.stderr).not.toContain('planted')
    },
  )
})
