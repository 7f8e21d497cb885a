import { type ChildProcess, execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { cp, mkdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { type ConnectionOptions, connect } from '@nats-io/transport-node'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { parse } from 'yaml'
import { awaitFreePort } from '#src/local/free-port.ts'
import { folderOfFile } from '../support/folders.ts'
import { NATS } from '../support/nats-server.ts'
import { needProgram } from '../support/needs.ts'
import { until } from '../support/until.ts'

const kubernetes = join(import.meta.dirname, '../../deploy/kubernetes')
const PASSWORD = 'a0b1c2d3e4f5'
/** The server, and the program that makes its certificate: the first of them that is missing. */
const NEED = NATS.isMet ? needProgram('openssl') : NATS

/** The commands that the operators' page gives for a certificate, as they are there. */
function certificateCommands(): string {
  const page = join(kubernetes, '../../docs/operating/run-on-kubernetes.md')
  const text = readFileSync(page, 'utf8')
  const block = /(?:^ {4}.*\n)*^ {4}openssl req -x509(?:.*\n)(?:^ {4}.*\n)*/m.exec(text)?.[0]
  return (block ?? '').replaceAll(/^ {4}/gm, '')
}

/** Where a pod of the manifest finds the files of a volume. */
function mountOf(name: string): string {
  const { spec } = parse(readFileSync(join(kubernetes, 'base/nats.yaml'), 'utf8'))
  const [{ volumeMounts }] = spec.template.spec.containers
  return volumeMounts.find((one: { readonly name: string }) => one.name === name).mountPath
}

const folder = folderOfFile()
let port: number
let server: ChildProcess
beforeAll(async () => {
  if (!NEED.isMet) return
  execFileSync('bash', ['-euc', certificateCommands()], { cwd: folder, stdio: 'ignore' })
  const placeOf = (volume: string) => join(folder, 'pod', mountOf(volume))
  for (const volume of ['config', 'login']) await mkdir(placeOf(volume), { recursive: true })
  await cp(join(folder, 'nats-tls'), placeOf('tls'), { recursive: true })
  const conf = await readFile(join(kubernetes, 'base/nats.conf'), 'utf8')
  port = await awaitFreePort(0)
  const moved = conf
    .replaceAll('/etc/nats/', `${join(folder, 'pod')}/etc/nats/`)
    .replace('0.0.0.0:4222', `127.0.0.1:${port}`)
  await writeFile(join(placeOf('config'), 'nats.conf'), moved)
  const login = await readFile(join(kubernetes, 'overlays/example/nats-login.conf.example'), 'utf8')
  await writeFile(join(placeOf('login'), 'login.conf'), login.replace('PASSWORD"', `${PASSWORD}"`))
  server = spawn('nats-server', ['--config', join(placeOf('config'), 'nats.conf')])
  let said = ''
  server.stderr?.on('data', (text) => (said += text))
  await until('nats-server is ready', () => {
    if (server.exitCode !== null) throw new Error(said)
    return said.includes('Server is ready')
  })
})
afterAll(async () => {
  if (!NEED.isMet) return
  const ended = once(server, 'exit')
  server.kill('SIGKILL')
  await ended
})

/** The name is what gateways dial by the Service; passed on to Node's TLS, though not in the type. */
const expectedServer = () => {
  const ca = readFileSync(join(folder, 'nats-tls/ca.crt'), 'utf8')
  return { ca, servername: 'affidavit-nats' }
}

const options = (more: ConnectionOptions = {}): ConnectionOptions => ({
  servers: [`127.0.0.1:${port}`],
  tls: expectedServer(),
  user: 'gateway',
  pass: PASSWORD,
  maxReconnectAttempts: 0,
  inboxPrefix: 'affidavit.inbox.test',
  ...more,
})

describe.runIf(NEED.isMet)(NEED.title('the NATS server of the manifests'), () => {
  it('gateways join with the password and a certificate that the page makes', async () => {
    const [one, other] = await Promise.all([connect(options()), connect(options())])
    other.subscribe('affidavit.ask', { callback: (_, message) => void message.respond('heard') })
    await other.flush()
    const answer = await one.request('affidavit.ask', 'hello')
    expect(answer.string()).toBe('heard')
    await Promise.all([one.close(), other.close()])
  })

  it.each<[string, ConnectionOptions]>([
    ['no password', { user: undefined, pass: undefined }],
    ['another password', { pass: 'PASSWORD' }],
    ['no TLS', { tls: null }],
    ['a certificate of an authority that it does not have', { tls: {} }],
  ])('the NATS server of the manifests takes no connection with %s', async (_, more) => {
    await expect(connect(options(more))).rejects.toThrow()
  })

  it('a gateway may publish and subscribe under affidavit subjects alone', async () => {
    const connection = await connect(options())
    const errors: string[] = []
    void (async () => {
      for await (const status of connection.status()) errors.push(JSON.stringify(status))
    })()
    connection.publish('other.subject', 'hello')
    await connection.flush()
    await expect.poll(() => errors.join()).toContain('other.subject')
    await connection.close()
  })
})
