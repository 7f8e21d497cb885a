import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { FAILED_FILES_VARIABLE, type FailedFile } from './support/run-summary.ts'

const VITEST = path.join(
  path.dirname(createRequire(import.meta.url).resolve('vitest/package.json')),
  'vitest.mjs',
)

/** The projects of vitest.config.ts that each command runs. */
const SETS: Readonly<Record<string, readonly string[]>> = {
  fast: ['unit', 'integration'],
  slow: ['slow', 'slow-alone'],
  nightly: ['nightly'],
}

/**
 * `npm test`, `npm run test:slow`, `npm run test:nightly`: `node test/run.ts SET …`. More words go
 * to vitest, options as `--name=value`: `npm run test:slow -- pages --bail=1`.
 *
 * The fast set checks types and lint beside the tests. In the others, each file that failed runs
 * once more, alone. A file that passes then is reported as flaky, with what it said, and does not
 * fail the run.
 */
const [set = '', ...words] = process.argv.slice(2)
const projects = SETS[set]
if (projects === undefined)
  throw new Error(`usage: node test/run.ts ${Object.keys(SETS).join('|')} [words for vitest]`)
process.exitCode = set === 'fast' ? await runBesideChecks(projects) : await runTwice(projects)

/** Resolves with the exit code. */
async function runBesideChecks(projects: readonly string[]): Promise<number> {
  const checked = new Promise<{ readonly isGood: boolean; readonly output: string }>((resolve) => {
    execFile('npm', ['run', '--silent', 'check'], (fault, stdout, stderr) =>
      resolve({ isGood: fault === null, output: stdout + stderr }),
    )
  })
  const { code } = await runVitest(projects, words, null)
  const { isGood, output } = await checked
  console.log(isGood ? 'types and lint: passed' : `types and lint: failed\n${output}`)
  return isGood ? code : 1
}

/** Resolves with the exit code. */
async function runTwice(projects: readonly string[]): Promise<number> {
  const folder = await mkdtemp(path.join(tmpdir(), 'affidavit-run-'))
  try {
    const report = path.join(folder, 'failed.json')
    const first = await runVitest(projects, words, report)
    // A run that broke down, and not in a test, is not tried again.
    if (first.code === 0 || first.failed.length === 0) return first.code
    const again: { readonly file: FailedFile; readonly code: number }[] = []
    const options = words.filter((word) => /^--.+=/.test(word))
    for (const file of first.failed) {
      const { code } = await runVitest(projects, [...options, file.file], report)
      again.push({ file, code })
    }
    for (const { file, code } of again) {
      console.log(`${code === 0 ? 'flaky' : 'failed twice'}: ${file.file}`)
      for (const failure of file.failures) console.log(`  ${failure}`)
    }
    return Math.max(...again.map(({ code }) => code))
  } finally {
    await rm(folder, { recursive: true })
  }
}

async function runVitest(
  projects: readonly string[],
  words: readonly string[],
  report: string | null,
) {
  if (report !== null) await rm(report, { force: true })
  const named = projects.map((project) => `--project=${project}`)
  const child = spawn(process.execPath, [VITEST, 'run', ...named, ...words], {
    stdio: 'inherit',
    env: report === null ? process.env : { ...process.env, [FAILED_FILES_VARIABLE]: report },
  })
  const [code, signal] = await once(child, 'exit')
  const failed: readonly FailedFile[] =
    report === null ? [] : await readFile(report, 'utf8').then(JSON.parse, () => [])
  return { code: signal === null ? Number(code) : 1, failed }
}
