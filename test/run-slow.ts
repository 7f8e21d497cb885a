import { spawn } from 'node:child_process'
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

/**
 * `npm run test:slow`: runs the slow tests, then each file that failed once more, alone. A file that
 * passes then is reported as flaky, with what it said, and does not fail the run. Words given to it go
 * to vitest, options as `--name=value`: `npm run test:slow -- pages --bail=1`.
 */
const folder = await mkdtemp(path.join(tmpdir(), 'affidavit-slow-'))
try {
  process.exitCode = await runSlow(process.argv.slice(2))
} finally {
  await rm(folder, { recursive: true })
}

/** Resolves with the exit code. */
async function runSlow(words: readonly string[]): Promise<number> {
  const first = await run(words)
  // A run that broke down, and not in a test, is not tried again.
  if (first.code === 0 || first.failed.length === 0) return first.code
  const again: { readonly file: FailedFile; readonly code: number }[] = []
  const options = words.filter((word) => /^--.+=/.test(word))
  for (const file of first.failed)
    again.push({ file, code: (await run([...options, file.file])).code })
  for (const { file, code } of again) {
    console.log(`${code === 0 ? 'flaky' : 'failed twice'}: ${file.file}`)
    for (const failure of file.failures) console.log(`  ${failure}`)
  }
  return Math.max(...again.map(({ code }) => code))
}

async function run(words: readonly string[]) {
  const file = path.join(folder, 'failed.json')
  await rm(file, { force: true })
  const child = spawn(process.execPath, [VITEST, 'run', '--project', 'slow*', ...words], {
    stdio: 'inherit',
    env: { ...process.env, [FAILED_FILES_VARIABLE]: file },
  })
  const [code, signal] = await once(child, 'exit')
  const failed: readonly FailedFile[] = await readFile(file, 'utf8').then(JSON.parse, () => [])
  return { code: signal === null ? Number(code) : 1, failed }
}
