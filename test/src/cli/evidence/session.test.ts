import { execFileSync } from 'node:child_process'
import { copyFileSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { connect } from '../../../../client/index.ts'
import { createSessionFile, readSession } from '../../../../src/cli/evidence/session.ts'
import { readExpectedService } from '../../../support/expected-service.ts'
import { runCli } from '../../../support/run-cli.ts'
import { type SharedAffidavit, useAffidavit } from '../../../support/use-affidavit.ts'

let service: SharedAffidavit
/** Two completed proofs, by their hashes. */
const proofs = new Map<string, string>()
beforeAll(async () => {
  service = await useAffidavit()
  const { connect: options } = await readExpectedService(service)
  const affidavit = await connect({ url: service.url, ...options })
  for (const content of ['session: one', 'session: two']) {
    const response = await affidavit.fetch(`${affidavit.baseURL}/chat/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', authorization: `Bearer ${service.apiKey}` },
      body: JSON.stringify({ model: 'demo/echo', messages: [{ role: 'user', content }] }),
    })
    const { hash } = (await response.json()) as { hash: string }
    const proof = affidavit.proofs.get(hash)
    if (proof === undefined) throw new Error('expected a proof')
    const anchored = await affidavit.anchored(proof, { apiKey: service.apiKey })
    proofs.set(hash, anchored.save())
  }
})

let folder: string
let path: string
beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), 'affidavit-session-'))
  for (const [hash, text] of proofs) writeFileSync(join(folder, `${hash}.json`), text)
  const session = await createSessionFile(folder, { gateway: 'x', startedAt: new Date(0) })
  const call = { at: '2026-11-26T00:00:00Z', model: 'demo/echo' }
  for (const hash of proofs.keys()) session.add({ ...call, verdict: 'checked', hash, detail: null })
  session.add({ ...call, verdict: 'refused', hash: null, detail: 'hash_mismatch' })
  await session.close()
  path = session.path
})

const verify = (...more: readonly string[]) =>
  runCli(['verify', path, '--expect', service.expectFile, ...more])
const fileOf = (at: number) => join(folder, `${[...proofs.keys()][at]}.json`)

describe('a session of the proxy', () => {
  it('a session is verified when every proof that it names is', async () => {
    const { code, stdout } = await verify('--require', 'verified')
    expect(stdout).toMatch(/^VERIFIED: 2 of 2 proofs of this session\.\n/)
    expect(stdout).toContain('Calls without a proof: 1, of which the proxy refused 1.')
    expect(code).toBe(0)
  })

  it('a session is given as JSON for programs', async () => {
    const { code, stdout } = await verify('--json')
    const report = JSON.parse(stdout)
    expect(report).toMatchObject({ ok: true, verdict: 'verified' })
    expect(report.session.map(({ hash }: { hash: string }) => hash)).toEqual([...proofs.keys()])
    expect(report.refused).toHaveLength(1)
    expect(code).toBe(0)
  })

  it('a proof that was changed makes the session invalid', async () => {
    writeFileSync(fileOf(1), readFileSync(fileOf(1), 'utf8').replaceAll('two', 'six'))
    const { code, stdout } = await verify()
    expect(stdout).toMatch(/^INVALID: 1 of 2 proofs/)
    expect(code).toBe(1)
  })

  it('a proof in the place of another makes the session invalid', async () => {
    copyFileSync(fileOf(0), fileOf(1))
    const { code, stdout } = await verify()
    expect(stdout).toContain('INVALID: the file is the proof of another call')
    expect(code).toBe(1)
  })

  it('a proof that is no proof makes the session invalid', async () => {
    writeFileSync(fileOf(1), 'nothing')
    const { code, stdout } = await verify()
    expect(stdout).toMatch(/^INVALID: 1 of 2 proofs/)
    expect(code).toBe(1)
  })

  it('a session with a proof that is not there is not decided', async () => {
    rmSync(fileOf(1))
    const { code, stdout } = await verify()
    expect(stdout).toMatch(/^MISSING: 1 of 2 proofs/)
    expect(code).toBe(3)
  })

  it('a session names no file but the proofs beside it', async () => {
    const text = readFileSync(path, 'utf8')
    for (const hash of ['../../etc/passwd', 'A'.repeat(64), '']) {
      writeFileSync(path, text.replace(/"hash":"[^"]*"/, `"hash":"${hash}"`))
      const { code, stderr } = await verify()
      expect(stderr).toContain('expected line 2 of the session file to have a verdict, and a hash')
      expect(code).toBe(1)
    }
  })

  it.each([
    ['a line that was cut', '{"at":"2026\n', 'line 5 of the session file to be a JSON object'],
    [
      'a member that nothing says',
      '{"at":"","more":1}\n',
      'line 5 of the session file to be an object',
    ],
  ])('a session with %s is refused, and the line is named', async (_, line, words) => {
    writeFileSync(path, readFileSync(path, 'utf8') + line)
    const { code, stderr } = await verify()
    expect(stderr).toContain(words)
    expect(code).toBe(1)
  })

  it('a last line that a crash cut is left out, and the rest is checked', async () => {
    writeFileSync(path, `${readFileSync(path, 'utf8')}{"at":"2026`)
    const { code, stdout } = await verify()
    expect(stdout).toMatch(/^VERIFIED: 2 of 2 proofs/)
    expect(stdout).toContain('The last line of the session file is not complete')
    expect(code).toBe(0)
  })

  it('a model that no strict reader takes does not spoil the file, and is not what is printed', async () => {
    const session = await createSessionFile(folder, { gateway: 'x', startedAt: new Date(1) })
    const [hash = ''] = proofs.keys()
    const call = { at: 'then', detail: null }
    session.add({ ...call, model: '\ud800'.repeat(300), verdict: 'error', hash: null })
    session.add({ ...call, model: 'another', verdict: 'checked', hash })
    await session.close()
    const read = readSession(readFileSync(session.path))
    expect(read?.calls[0]?.model).toBe('\ufffd'.repeat(200))
    const { code, stdout } = await runCli([
      'verify',
      session.path,
      path,
      '--expect',
      service.expectFile,
    ])
    expect(stdout).toContain(`${hash}  demo/echo\n`)
    expect(stdout).not.toContain('another')
    expect([code, stdout.match(/VERIFIED: \d of/g)]).toEqual([
      0,
      ['VERIFIED: 1 of', 'VERIFIED: 2 of'],
    ])
  })

  it('a proof that is no file is not waited for', async () => {
    rmSync(fileOf(1))
    execFileSync('mkfifo', [fileOf(1)])
    expect((await verify()).code).toBe(3)
  })

  it('a session of a later version is refused', async () => {
    writeFileSync(path, readFileSync(path, 'utf8').replace('"version":1', '"version":2'))
    expect((await verify()).stderr).toContain('expected a session file of version 1')
  })

  it('a session cannot be read from standard input, and takes no request', async () => {
    const input = readFileSync(path, 'utf8')
    const piped = await runCli(['verify', '-', '--expect', service.expectFile], { input })
    expect([piped.code, piped.stderr]).toEqual([2, expect.stringContaining('as a file')])
    const beside = await verify('--request', path)
    expect([beside.code, beside.stderr]).toEqual([2, expect.stringContaining('no --request')])
  })

  it('what is no session is read as something else', () => {
    const bytes = (text: string) => new TextEncoder().encode(text)
    for (const text of ['', '\n', '{}', '{"format":"affidavit-proof"}\n', 'data: x\n\n', '[1]\n'])
      expect(readSession(bytes(text))).toBeNull()
  })
})
