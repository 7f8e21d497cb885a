import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, readFile, rm, stat } from 'node:fs/promises'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { promisify } from 'node:util'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { listTree, nameProcess } from '../bench/processes.ts'
import { type Affidavit, launchAffidavit, startAffidavit } from '../support/affidavit.ts'
import { complete } from '../support/completions.ts'
import { callChain } from '../support/deployment/deployment.ts'
import { isAlive } from '../support/is-alive.ts'
import { runCli } from '../support/run-cli.ts'

async function get(service: Affidavit, path: string): Promise<{ status: number; body: string }> {
  const response = await fetch(service.url + path, {
    headers: { authorization: `Bearer ${service.apiKey}` },
  })
  return { status: response.status, body: await response.text() }
}

const receiptOf = ({ rpcUrl }: Affidavit, hash: string) =>
  callChain(rpcUrl, 'eth_getTransactionReceipt', [hash])

describe('npm start', () => {
  let service: Affidavit
  let folder = ''

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'affidavit-data-'))
    service = await startAffidavit({ dataFolder: folder })
  })
  afterAll(async () => {
    await service.stop()
    await rm(folder, { recursive: true, force: true })
  })

  it('npm start prints a curl line that works, and a line that verifies its record', async () => {
    const lines = service
      .output()
      .stdout.split('\n')
      .map((line) => line.trim())
    const curl = lines.find((line) => line.startsWith('curl ')) ?? ''
    const verify = lines.find((line) => line.startsWith('npm run -s affidavit -- verify ')) ?? ''
    const run = promisify(execFile)
    const { stdout: answer } = await run('bash', ['-c', curl])
    expect(JSON.parse(answer).choices[0].message.content).toBe('[demonstration] You said: Hello')
    const cwd = join(import.meta.dirname, '../..')
    // A record alone is INCOMPLETE: exit code 3.
    const { stdout: report } = await run('bash', ['-c', `${verify} || test $? = 3`], { cwd })
    expect(report).toContain(JSON.parse(answer).hash)
    expect(report).toMatch(/^INCOMPLETE: nothing failed/)
  })

  it('npm start says which parts are embedded, simulated or for demonstration', () => {
    const { stdout } = service.output()
    for (const mark of [
      'EMBEDDED: PGlite',
      'SIMULATED: a local anvil',
      'SIMULATED: a plain process',
      'DEMONSTRATION: demo/',
    ])
      expect(stdout).toContain(mark)
  })

  it('npm start anchors a completion in a transaction to the contract that succeeds', async () => {
    const { tx_hash } = await complete(service, 'anchor me')
    type Receipt = { readonly status: string; readonly to: string } | null
    const receipt = () => receiptOf(service, tx_hash) as Promise<Receipt>
    await expect
      .poll(receipt, { timeout: 30_000 })
      .toMatchObject({ status: '0x1', to: service.contract })
  })

  it('npm start keeps its keys and sockets from other users', async () => {
    const modeOf = async (path: string) => (await stat(path)).mode & 0o777
    expect(await modeOf(join(folder, 'api-key'))).toBe(0o600)
    expect(await readFile(join(folder, 'api-key'), 'utf8')).toBe(`${service.apiKey}\n`)
    const { socket } = JSON.parse(await readFile(join(folder, 'control.json'), 'utf8'))
    expect(await modeOf(dirname(socket))).toBe(0o700)
  })

  it('npm start refuses a second gateway on the same data folder, and says which process has it', async () => {
    const { child, output } = launchAffidavit({ dataFolder: folder })
    const [code] = await once(child, 'close')
    expect(code).toBe(1)
    expect(output().stderr).toContain(`process ${service.pid} has it open`)
    expect(output().stderr).not.toContain('    at ')
  })

  it('npm start brings back an enclave and a demo provider that were killed', async () => {
    for (const script of ['enclave/main.ts', 'demo/main.ts']) {
      const pid = listTree(service.pid).find((candidate) => nameProcess(candidate) === script)
      process.kill(pid ?? 0, 'SIGKILL')
      await expect
        .poll(
          () =>
            complete(service, `after ${script}`).then(
              (answer) => answer.tx_hash,
              () => null,
            ),
          { timeout: 30_000, interval: 200 },
        )
        .toMatch(/^0x/)
    }
  })

  it('npm start keeps the history over a kill -9 of the gateway, and leaves no process behind', async () => {
    const { hash, tx_hash } = await complete(service, 'survive')
    const parts = listTree(service.pid).filter((pid) => pid !== service.pid)
    expect(parts.length).toBeGreaterThanOrEqual(3)
    await service.kill()
    await expect.poll(() => parts.filter(isAlive), { timeout: 30_000 }).toEqual([])
    const key = service.apiKey
    service = await startAffidavit({ dataFolder: folder })
    expect(service.apiKey).toBe(key)
    const { status, body } = await get(service, `/v1/verified/chat/completions/${hash}`)
    expect(status).toBe(200)
    expect(JSON.parse(body).tx_hash).toBe(tx_hash)
    await expect
      .poll(() => receiptOf(service, tx_hash), { timeout: 30_000 })
      .toMatchObject({ status: '0x1' })
    const run = await runCli(['verify', '-', '--any-measurement', '--root', service.rootFile], {
      input: body,
    })
    expect(run).toMatchObject({ code: 3, stdout: expect.stringContaining('INCOMPLETE: ') })
  })
})

describe('a stop', () => {
  let folder = ''
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'affidavit-data-'))
  })
  afterAll(() => rm(folder, { recursive: true, force: true }))
  const start = (variables = {}) =>
    startAffidavit({ dataFolder: folder, variables: { DEMO_DELAY_MS: '50', ...variables } })

  it('a stop finishes running calls, commits them, and then exits 0 with nothing left behind', async () => {
    const service = await start()
    const parts = listTree(service.pid)
    const slow = await startSlowStream(service)
    const stopped = service.stop()
    expect((await slow.text).split('\n\n').filter(Boolean).at(-1)).toBe('data: [DONE]')
    expect(await stopped).toBe(0)
    await expect.poll(() => parts.filter(isAlive), { timeout: 30_000 }).toEqual([])
    expect(service.output().stderr).not.toContain('"level":"error"')
  })

  it('a stop reaches every part when npm gets the signal', async () => {
    const npm = spawn('npm', ['start'], {
      cwd: join(import.meta.dirname, '../..'),
      env: { ...process.env, PORT: '0', CHAIN_PORT: '0', DATA_DIR: folder },
      stdio: ['ignore', 'pipe', 'ignore'],
    })
    const ended = once(npm, 'exit')
    let said = ''
    npm.stdout.setEncoding('utf8').on('data', (text: string) => {
      said += text
    })
    let parts: readonly number[] = []
    try {
      await expect.poll(() => said, { timeout: 60_000 }).toContain('curl')
      parts = npm.pid === undefined ? [] : listTree(npm.pid)
      expect(parts.length).toBeGreaterThan(5)
      npm.kill('SIGTERM')
      await ended
      await expect.poll(() => parts.filter(isAlive), { timeout: 30_000 }).toEqual([])
    } finally {
      const hasEnded = npm.exitCode !== null || npm.signalCode !== null || npm.pid === undefined
      const left = hasEnded ? parts.slice(1) : listTree(npm.pid)
      for (const pid of left.filter(isAlive)) process.kill(pid, 'SIGKILL')
    }
  })

  it('a stop serves on for its drain delay, not ready, which the second signal skips', async () => {
    const service = await start({ DRAIN_DELAY_MS: '600000' })
    process.kill(service.pid, 'SIGTERM')
    await expect.poll(async () => (await get(service, '/readyz')).status).toBe(503)
    expect((await get(service, '/readyz')).body).toContain('"failing":["stopping"')
    await complete(service, 'still here')
    // A signal that comes at once counts as the first one.
    await sleep(1_000)
    expect((await get(service, '/healthz')).status).toBe(200)
    process.kill(service.pid, 'SIGTERM')
    await expect.poll(() => isAlive(service.pid), { timeout: 30_000 }).toBe(false)
  })

  it('a stop ends at once with the second signal, and takes every part along', async () => {
    const service = await start()
    const parts = listTree(service.pid)
    const slow = await startSlowStream(service)
    const cut = slow.text.catch(() => 'cut off')
    process.kill(service.pid, 'SIGINT')
    // One Ctrl-C that arrives twice does not count as a second one.
    process.kill(service.pid, 'SIGINT')
    await sleep(1_000)
    expect(isAlive(service.pid)).toBe(true)
    process.kill(service.pid, 'SIGINT')
    await expect.poll(() => parts.filter(isAlive), { timeout: 30_000 }).toEqual([])
    expect(await cut).toBe('cut off')
  })
})

/** Starts a stream of at least two seconds, and waits for its beginning. */
async function startSlowStream(service: Affidavit): Promise<{ readonly text: Promise<string> }> {
  const response = await fetch(`${service.url}/v1/verified/chat/completions`, {
    method: 'POST',
    headers: { authorization: `Bearer ${service.apiKey}`, 'content-type': 'application/json' },
    body: JSON.stringify({
      model: 'demo/lorem',
      stream: true,
      messages: [{ role: 'user', content: 'hi' }],
    }),
  })
  expect(response.status).toBe(200)
  return { text: response.text() }
}

describe('a start that cannot be', () => {
  let folder = ''
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'affidavit-data-'))
  })
  afterAll(() => rm(folder, { recursive: true, force: true }))

  async function fail(variables: Readonly<Record<string, string>>): Promise<string> {
    const { child, output } = launchAffidavit({ dataFolder: folder, variables })
    const [code] = await once(child, 'close')
    expect(code).toBe(1)
    expect(output().stderr).not.toContain('    at ')
    return output().stderr
  }

  it('a start in production names every part that it refuses, in one report', async () => {
    const report = await fail({ NODE_ENV: 'production' })
    for (const part of [
      'embedded database',
      'local chain',
      'simulated security module',
      'demo provider',
    ])
      expect(report).toContain(
        `refuses ${part.startsWith('simulated') ? 'an enclave with a' : 'the'} ${part}`,
      )
    expect(report).toContain('HISTORY_ALL: expected in production')
  })

  it('a start that fails names a port that is taken, and a chain port that is taken', async () => {
    const server = createServer().listen(0, '127.0.0.1')
    await once(server, 'listening')
    const address = server.address()
    const port = String(typeof address === 'object' ? address?.port : 0)
    expect(await fail({ PORT: port })).toContain(`PORT ${port} is in use`)
    expect(await fail({ CHAIN_PORT: port })).toContain(`CHAIN_PORT ${port} is in use`)
    server.close()
  })

  it('a start that fails names an operator’s part that is not there', async () => {
    expect(await fail({ ENCLAVE_URL: 'unix:/nowhere/enclave.sock' })).toContain('ENCLAVE_URL')
    const report = await fail({ DATABASE_URL: 'postgres://user:hush@127.0.0.1:1/x' })
    expect(report).toContain('DATABASE_URL')
    expect(report).not.toContain('hush')
  })
})
