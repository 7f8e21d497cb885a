import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { CliError, EXIT_CODES } from '#src/cli/faults.ts'
import { checkKeyOrigin, chooseKey } from '#src/cli/gateway-access.ts'
import { runCommand } from '../../support/run-command.ts'
import { type ScriptedEndpoint, startScriptedEndpoint } from '../../support/scripted-endpoint.ts'

const KEY = 'afd_planted'
const HASH = 'ab'.repeat(32)
const ASKS_FOR_KEY = 'Expected the header Authorization: Bearer <API_KEY>'

/** A server that refuses callers without a key, and remembers what it was sent. */
type Host = {
  readonly origin: string
  readonly port: number
  readonly sent: (string | undefined)[]
}

const servers: ScriptedEndpoint[] = []
let gateway: Host
let stranger: Host

async function startHost(location?: () => string): Promise<Host> {
  const sent: (string | undefined)[] = []
  const server = await startScriptedEndpoint(({ headers }, response) => {
    sent.push(headers.authorization)
    if (location !== undefined) response.writeHead(302, { location: location() }).end()
    else response.writeHead(401).end(JSON.stringify({ error: { message: ASKS_FOR_KEY } }))
  })
  servers.push(server)
  return { origin: server.origin, port: Number(new URL(server.origin).port), sent }
}

beforeEach(async () => {
  gateway = await startHost()
  stranger = await startHost()
})
afterEach(async () => {
  vi.unstubAllEnvs()
  for (const server of servers.splice(0)) await server.stop()
})

/** In this process, which starts faster than one of its own does, many times. */
function run(words: readonly string[], more: Readonly<Record<string, string>> = {}) {
  const variables = { AFFIDAVIT_URL: gateway.origin, AFFIDAVIT_API_KEY: KEY, ...more }
  for (const [name, value] of Object.entries(variables)) vi.stubEnv(name, value)
  return runCommand(...words)
}

/** Every way to name a host that is not AFFIDAVIT_URL's. */
const commandsAt = (url: string): readonly (readonly string[])[] => [
  ['verify', `${url}/bundle.json`],
  ['verify', HASH, '--url', url],
  ['evidence', HASH, '--url', url],
  ['audit', url],
]

describe("the environment's key", () => {
  it("the environment's key is sent to the origin of AFFIDAVIT_URL, whatever the path", async () => {
    const variables = { AFFIDAVIT_URL: `${gateway.origin}/gateway/` }
    const words = [
      ['verify', `${gateway.origin}/bundle.json`],
      ['verify', HASH],
      ['audit', gateway.origin],
    ]
    for (const each of words) await run(each, variables)
    expect(gateway.sent).toEqual(words.map(() => `Bearer ${KEY}`))
  })

  it("the environment's key is not sent to another origin, which its message explains", async () => {
    for (const words of commandsAt(stranger.origin)) {
      const { code, stdout, stderr } = await run(words)
      // An audit that cannot read what there is has found that.
      expect([words, code]).toEqual([words, words[0] === 'audit' ? 1 : 3])
      expect(stdout + stderr).toContain(
        `${ASKS_FOR_KEY} (AFFIDAVIT_API_KEY is for ${gateway.origin}, AFFIDAVIT_URL, and not for ` +
          `${stranger.origin}: give --key to send one there, or set AFFIDAVIT_URL to it)`,
      )
      expect(stdout + stderr).not.toContain(KEY)
    }
    expect(stranger.sent).toEqual(commandsAt('').map(() => undefined))
  })

  it("a key is not sent across a redirect of the gateway, be it the environment's or that of --key", async () => {
    const moved = await startHost(() => `${stranger.origin}/elsewhere`)
    for (const words of commandsAt(moved.origin)) {
      await run(words, { AFFIDAVIT_URL: moved.origin })
      await run([...words, '--key', 'afd_given'])
    }
    expect(moved.sent).toEqual(commandsAt('').flatMap(() => [`Bearer ${KEY}`, 'Bearer afd_given']))
    expect(stranger.sent).toEqual([])
  })

  it("a node command that names another gateway ends before it asks, without the environment's key", async () => {
    for (const words of [['create', 'my node'], ['status', '--node-id', 'a_b_c_d_e'], ['run']]) {
      const { code, stderr } = await run(['node', ...words, '--url', stranger.origin])
      expect([code, stderr]).toEqual([2, expect.stringContaining(`and not for ${stranger.origin}`)])
    }
    await run(['node', 'create', 'my node', '--url', stranger.origin, '--key', 'afd_given'])
    await run(['node', 'create', 'my node', '--url', `${gateway.origin}/v1`])
    expect([stranger.sent, gateway.sent]).toEqual([['Bearer afd_given'], [`Bearer ${KEY}`]])
  })
})

describe('a key that is asked for', () => {
  it('a key that a gateway asks for is explained with the option and the variable', async () => {
    for (const words of commandsAt(stranger.origin)) {
      const { stdout, stderr } = await run(words, { AFFIDAVIT_API_KEY: '' })
      expect(stdout + stderr).toContain(
        `${ASKS_FOR_KEY} (--key, or AFFIDAVIT_API_KEY for AFFIDAVIT_URL)`,
      )
    }
  })
})

describe('chooseKey', () => {
  const environment = { AFFIDAVIT_URL: 'https://gateway.example/base', AFFIDAVIT_API_KEY: KEY }

  it.each([
    ['https://gateway.example/v1/log', KEY],
    ['https://GATEWAY.example:443', KEY],
    ['http://gateway.example', null],
    ['https://gateway.example:8443', null],
    ['https://gateway.example.evil.example', null],
    ['https://gateway.example@evil.example', null],
    ['https://evil.example/?https://gateway.example/', null],
    ['https://', null],
  ])('chooseKey gives for %s the key %s', (url, expected) => {
    expect(chooseKey(url, {}, environment).apiKey).toBe(expected)
  })
})

describe('checkKeyOrigin', () => {
  it('checkKeyOrigin calls another origin a usage error', () => {
    const check = () => checkKeyOrigin({ url: 'https://other.example' }, { AFFIDAVIT_API_KEY: KEY })
    expect(check).toThrow(CliError)
    expect(check).toThrow(expect.objectContaining({ exitCode: EXIT_CODES.usage }))
  })
})
