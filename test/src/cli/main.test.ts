import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { childEnvironment } from '../../support/child-environment.ts'
import { runCli } from '../../support/run-cli.ts'
import { runCommand } from '../../support/run-command.ts'

const ROOT = join(import.meta.dirname, '../../..')
const PCR0 = `0=${'00'.repeat(48)}`

/** Runs the command line, and does not read its standard output. */
async function runUnread(words: readonly string[]) {
  const child = spawn(process.execPath, [join(ROOT, 'src/cli/main.ts'), ...words], {
    cwd: ROOT,
    env: childEnvironment(),
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  child.stdout.destroy()
  let complaint = ''
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    complaint += text
  })
  const [code] = await once(child, 'close')
  return { code, complaint }
}

describe('the command line', () => {
  it('the command line prints the version of the package', async () => {
    const { version } = JSON.parse(
      await readFile(join(import.meta.dirname, '../../../package.json'), 'utf8'),
    )
    expect(await runCli(['--version'])).toEqual({ code: 0, stdout: `${version}\n`, stderr: '' })
  })

  it.each([
    ['no command', []],
    ['an unknown command', ['nonsense']],
    ['an unknown option', ['verify', 'x', '--nonsense']],
    ['a missing argument', ['verify']],
    ['both kinds of expectation', ['verify', '-', '--any-measurement', '--pcr', PCR0]],
    ['a name with control characters', ['keys', 'create', '--name', 'a\u001bb']],
    ['a shell that is not known', ['completions', 'tcsh']],
  ])('the command line calls %s a usage error', async (_, words) => {
    expect((await runCommand(...words)).code).toBe(2)
  })

  it('the command line exits 2 with a hint and no stack', async () => {
    const { code, stderr } = await runCli(['verify', 'x', '--nonsense'])
    expect([code, stderr]).toEqual([2, expect.stringContaining('--nonsense')])
    expect(stderr).not.toMatch(/^ {4}at /m)
  })

  it('the command line exits 3 for a file that is not there, and one on a host that is none', async () => {
    for (const source of ['/nowhere/record.json', 'http://127.0.0.1:1/record.json']) {
      const { code, stderr } = await runCli(['verify', source])
      expect([code, stderr]).toEqual([3, expect.stringContaining('cannot ')])
      expect(stderr).not.toMatch(/^ {4}at /m)
    }
  })

  it('the command line exits 2 for a wrong environment, without repeating it', async () => {
    const run = await runCli(['keys', 'list'], { variables: { DATABASE_URL: 'mysql://hush' } })
    expect(run.code).toBe(2)
    expect(run.stderr).toContain('DATABASE_URL: expected')
    expect(run.stderr).not.toContain('hush')
  })

  it.each([
    ['the help', 0, ['--help']],
    ['that nothing failed', 3, ['verify', 'test/vectors/records/stored.json', '--json']],
    ['that a bundle fails', 1, ['verify', 'test/vectors/evidence/bundle.json', '--json']],
  ])(
    'the command line ends quietly when its reader is gone before it says %s, with the same exit code',
    async (_, code, words) => {
      expect(await runUnread(words)).toEqual({ code, complaint: '' })
    },
  )
})
