import { execFile } from 'node:child_process'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type Machine, startMachine } from '../runbooks/machine.ts'
import { DEBIAN_POSTGRES, DEBIAN_POSTGRES_PROGRAMS } from '../support/postgres.ts'
import { runCli } from '../support/run-cli.ts'
import { findForms } from '../support/search-bytes.ts'
import { until } from '../support/until.ts'

const run = promisify(execFile)
const programs = DEBIAN_POSTGRES_PROGRAMS

type Kept = { readonly hash: string; readonly request: string; readonly answer: string }

describe.runIf(DEBIAN_POSTGRES.isMet)(
  DEBIAN_POSTGRES.title('what pg_dump writes of a gateway’s database'),
  () => {
    let machine: Machine
    let folder: string
    beforeAll(async () => {
      folder = await mkdtemp(join(tmpdir(), 'affidavit-dumped-'))
      machine = await startMachine({ database: { programs } })
    })
    afterAll(async () => {
      await machine?.stop()
      await rm(folder, { recursive: true, force: true })
    })

    const bearer = () => ({ authorization: `Bearer ${machine.key}` })
    const recordUrl = (hash: string) =>
      `${machine.gateways[0].origin}/v1/verified/chat/completions/${hash}`

    /** Makes a verified completion with the text in its prompt and answer; keeps the answer. */
    async function plant(text: string): Promise<Kept> {
      const messages = [{ role: 'user', content: text }]
      const request = JSON.stringify({ model: 'demo/echo', messages })
      const reply = await fetch(`${machine.gateways[0].origin}/v1/verified/chat/completions`, {
        method: 'POST',
        headers: {
          ...bearer(),
          'content-type': 'application/json',
          'idempotency-key': crypto.randomUUID(),
        },
        body: request,
      })
      const answer = await reply.text()
      expect([reply.status, answer.includes(text)]).toEqual([200, true])
      return { hash: (JSON.parse(answer) as { readonly hash: string }).hash, request, answer }
    }

    /** The forms of the text in a plain dump, and in a dump of pg_dump's own format. */
    async function findInDumps(text: string): Promise<readonly (readonly string[])[]> {
      const found: (readonly string[])[] = []
      for (const words of [['--format=plain'], ['--format=custom', '--compress=0']]) {
        const file = join(folder, crypto.randomUUID())
        const url = machine.postgres.url
        await run(join(programs, 'pg_dump'), [...words, `--file=${file}`, url])
        const bytes = await readFile(file)
        // This shows that it is a dump of this database.
        expect(findForms(bytes, '2026-11-26-initial')).toContain('bytes')
        found.push(findForms(bytes, text))
      }
      return found
    }

    async function restart(settings: Readonly<Record<string, string>>): Promise<void> {
      const [gateway] = machine.gateways
      const file = join(gateway.etc, 'gateway.env')
      const lines = (await readFile(file, 'utf8'))
        .split('\n')
        .filter((line) => !line.startsWith('CONTENT_KEY_FILE='))
      const added = Object.entries(settings).map(([name, value]) => `${name}=${value}`)
      await writeFile(file, [...added, ...lines].join('\n'))
      await gateway.program.end('SIGTERM')
      await gateway.start()
    }

    async function makeKeys(name: string): Promise<{ readonly CONTENT_KEY_FILE: string }> {
      const file = join(folder, name)
      await writeFile(file, (await runCli(['content', 'key'])).stdout, { mode: 0o600 })
      return { CONTENT_KEY_FILE: file }
    }

    it('a dump of the database has prompts and answers only without content keys, and proofs outlive the keys', async () => {
      const [gateway] = machine.gateways
      await plant('a planted sentence 7d31 without keys')
      expect(await findInDumps('a planted sentence 7d31')).toEqual([['bytes'], ['bytes']])

      const keys = await makeKeys('content.keys')
      await restart(keys)
      await machine.waitUntilReady()
      const kept = await plant('another planted sentence c80e, with keys')
      expect(await findInDumps('another planted sentence c80e')).toEqual([[], []])

      // Content that was stored before is in the dump until it is encrypted.
      const variables = { DATABASE_URL: machine.postgres.url, ...keys }
      expect(await runCli(['content', 'encrypt'], { variables })).toMatchObject({ code: 0 })
      expect(await findInDumps('a planted sentence 7d31')).toEqual([[], []])

      // The keys are lost: the gateway does not start without keys, and says which are missing.
      await restart({})
      await until('it says so', () =>
        gateway.program.output.includes('there is no key: set CONTENT_'),
      )
      await restart(await makeKeys('new.keys'))
      await machine.waitUntilReady()
      expect(gateway.program.output).toContain('keys of stored content are missing')
      const reply = await fetch(recordUrl(kept.hash), { headers: bearer() })
      const record = await reply.text()
      expect(JSON.parse(record)).toMatchObject({
        request: null,
        response: null,
        redacted: true,
        withheld: { code: 'content_key_missing' },
      })

      // Its proof holds by hashes, and in full with the caller's kept answer.
      const trust = ['--any-measurement', '--root', machine.rootFile]
      const byHashes = await runCli(['verify', '-', ...trust], { input: record })
      expect(byHashes).toMatchObject({ code: 0 })
      expect(byHashes.stdout).toMatch(/^ +passed +signature/m)
      expect(byHashes.stdout).toMatch(/^ +not checked +request hash/m)
      for (const name of ['request', 'answer'] as const)
        await writeFile(join(folder, `${name}.json`), kept[name])
      const files = [
        '--request',
        join(folder, 'request.json'),
        '--answer',
        join(folder, 'answer.json'),
      ]
      const whole = await runCli(['verify', '-', ...files, ...trust], { input: record })
      expect(whole).toMatchObject({ code: 0 })
      expect(whole.stdout).toMatch(/^ +passed +request hash/m)
    })
  },
)
