import { execFile } from 'node:child_process'
import { chmod, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { writeBundledProgram } from '../support/bundled-program.ts'
import { isAlive } from '../support/is-alive.ts'
import { until } from '../support/until.ts'

const ROOT = join(import.meta.dirname, '../..')
const DRIVER = join(ROOT, 'test/conformance/run.ts')

type Run = { readonly code: number; readonly stdout: string; readonly stderr: string }

async function drive(...words: readonly string[]): Promise<Run> {
  const options = { maxBuffer: 64 * 1024 * 1024 }
  try {
    const run = promisify(execFile)(process.execPath, [DRIVER, ...words], options)
    return { code: 0, ...(await run) }
  } catch (fault) {
    return fault as Run
  }
}

/** Our verifier as its package has it. Unit tests judge every case in one process. */
let ours: readonly string[]
let remove: () => Promise<void>
beforeAll(async () => {
  const bundled = await writeBundledProgram()
  ours = [process.execPath, bundled.program]
  remove = bundled.remove
})
afterAll(() => remove?.())

describe('our own verifier', () => {
  it('our own verifier conforms as a program, called by the driver', async () => {
    const { code, stdout } = await drive('--only', '/anchor-', ...ours)
    expect(stdout).toMatch(/^CASE +EXPECTED +GOT +OK$/m)
    expect(stdout).toMatch(/^CONFORMS: \d\d cases$/m)
    expect(code).toBe(0)
  })

  it('our own verifier is asked with a chain, where a case has one', async () => {
    const { code, stdout } = await drive('--only', 'block-on-chain', '--json', ...ours)
    expect(code).toBe(0)
    expect(JSON.parse(stdout)).toMatchObject({ ok: true, cases: 3, different: 0, skipped: 0 })
  })
})

describe('the driver', () => {
  let folder: string
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'affidavit-driver-'))
  })
  afterAll(() => rm(folder, { recursive: true }))

  async function save(name: string, source: string): Promise<readonly string[]> {
    const path = join(folder, name)
    await writeFile(path, source)
    await chmod(path, 0o755)
    return [process.execPath, path]
  }

  it('the driver finds a verifier that says verified of everything, in every case that is not', async () => {
    const report = { ok: true, bundle: { verdict: 'verified', checks: [] } }
    const yes = await save('yes.mjs', `console.log(${JSON.stringify(JSON.stringify(report))})`)
    const { code, stdout } = await drive('--verdicts', '--json', '--only', 'bundle/release', ...yes)
    const { results } = JSON.parse(stdout) as {
      readonly results: readonly { readonly expected: string; readonly differences: string[] }[]
    }
    expect(code).toBe(1)
    expect(results.filter(({ differences }) => differences.length > 0).length).toBeGreaterThan(4)
    for (const { expected, differences } of results)
      expect(differences.length > 0).toBe(!expected.startsWith('verified'))
  })

  it('the driver finds a verifier with the right verdict for another reason, unless an option allows it', async () => {
    const checks = [{ name: 'hash', outcome: 'failed' }]
    const no = await save(
      'no.mjs',
      `console.log(${JSON.stringify(JSON.stringify({ bundle: { verdict: 'invalid', checks } }))}); process.exitCode = 1`,
    )
    const strict = await drive('--only', 'anchor-time', ...no)
    expect(strict.code).toBe(1)
    expect(strict.stdout).toMatch(/^ {2}failed: hash, which is not expected$/m)
    expect((await drive('--only', 'anchor-time', '--verdicts', ...no)).code).toBe(0)
  })

  it('the driver finds a verifier whose exit code says otherwise than its verdict', async () => {
    const checks = [{ name: 'anchor time', outcome: 'failed' }]
    const zero = await save(
      'zero.mjs',
      `console.log(${JSON.stringify(JSON.stringify({ bundle: { verdict: 'invalid', checks } }))})`,
    )
    const { code, stdout } = await drive('--verdicts', '--only', 'anchor-time', ...zero)
    expect(code).toBe(1)
    expect(stdout).toMatch(/^ {2}exit code 0, expected 1$/m)
  })

  it('the driver ends a program that hangs, with what it started, and a program that never stops printing', async () => {
    const idFile = join(folder, 'started-id')
    const hanging = await save(
      'hang.mjs',
      `import { spawn } from 'node:child_process'
      import { writeFileSync } from 'node:fs'
      const args = ['-e', 'setInterval(() => undefined, 1000)']
      const started = spawn(process.execPath, args, { stdio: 'ignore' })
      writeFileSync(${JSON.stringify(idFile)}, String(started.pid))
      setInterval(() => undefined, 1000)`,
    )
    const hung = await drive('--timeout', '5', '--only', 'anchor-time/an-hour', ...hanging)
    expect(hung.code).toBe(1)
    expect(hung.stdout).toMatch(/no end within 5000 ms/)
    const started = Number(await readFile(idFile, 'utf8'))
    await until('what the program started is ended', () => !isAlive(started))
    const flooding = await save(
      'flood.mjs',
      `import { writeSync } from 'node:fs'
for (;;) writeSync(1, 'x'.repeat(4096))`,
    )
    const flooded = await drive('--only', 'anchor-time/an-hour', ...flooding)
    expect(flooded.stdout).toMatch(/more than \d+ bytes of output/)
  })

  it('the driver says that a program that is not there cannot be started', async () => {
    const { code, stdout } = await drive('--only', 'anchor-time/an-hour', join(folder, 'nothing'))
    expect(code).toBe(1)
    expect(stdout).toMatch(/cannot be started: spawn \S+ ENOENT/)
  })

  it('the driver skips what a program cannot do, and says how much that is', async () => {
    const ofAnchors = ['--without', 'rpc', '--only', 'bundle/anchor-time'] as const
    const { code, stdout } = await drive(...ofAnchors, ...ours)
    expect(code).toBe(0)
    expect(stdout).toMatch(/^CONFORMS: 3 cases$/m)
    const none = await drive('--without', 'rpc', '--only', 'block-on-chain', ...ours)
    expect(none.code).toBe(1)
    expect(none.stdout).toMatch(/^NO CASES, 3 skipped$/m)
    expect((await drive('--without', 'nothing', ...ours)).stderr).toMatch(/expected some of rpc/)
  })
})
