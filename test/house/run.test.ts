import { spawnSync } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { beforeEach, describe, expect, it } from 'vitest'
import { folderOfTest } from '../support/folders.ts'
import { needProgram } from '../support/needs.ts'
import { describeSkipped } from '../support/run-summary.ts'

const RUN = fileURLToPath(new URL('../run.ts', import.meta.url))
const SUMMARY = fileURLToPath(new URL('../support/run-summary.ts', import.meta.url))

let folder: string
beforeEach(() => {
  folder = folderOfTest()
  const slow = { test: { name: 'slow', globals: true, include: ['*.test.mjs'] } }
  const config = { test: { projects: [slow], reporters: ['default', SUMMARY] } }
  writeFileSync(path.join(folder, 'vitest.config.mjs'), `export default ${JSON.stringify(config)}`)
})

/** Runs slow tests of which these are the bodies, by name of file. */
function runSlow(tests: Readonly<Record<string, string>>) {
  for (const [name, text] of Object.entries(tests))
    writeFileSync(path.join(folder, `${name}.test.mjs`), text)
  const words = [`--root=${folder}`]
  const { status, stdout } = spawnSync(process.execPath, [RUN, 'slow', ...words], {
    encoding: 'utf8',
    env: { ...process.env, VITEST: '', NO_COLOR: '1' },
  })
  return { status, lines: stdout.trim().split('\n') }
}

const PASSES = "it('a test passes', () => {})"
const FAILS = "it('a test fails', () => { throw new Error('it is broken') })"
/** Fails where it runs first. */
const FAILS_ONCE = `
  import { existsSync, writeFileSync } from 'node:fs'
  it('a test fails once', () => {
    const mark = new URL('mark', import.meta.url)
    if (existsSync(mark)) return
    writeFileSync(mark, '')
    throw new Error('the machine was slow')
  })`

describe('npm run test:slow', () => {
  it('a file that passes when it runs again is told as flaky, and the run is green', () => {
    const { status, lines } = runSlow({ passes: PASSES, wobbles: FAILS_ONCE })
    expect(lines.slice(-2)).toEqual([
      'flaky: wobbles.test.mjs',
      '  a test fails once: the machine was slow',
    ])
    expect(status).toBe(0)
  })

  it('a file that fails twice, or cannot be loaded, fails the run and is named', () => {
    const broken = "import './nothing.mjs'"
    const { status, lines } = runSlow({ breaks: FAILS, broken, passes: PASSES })
    expect(status).toBe(1)
    expect(lines).toContain('failed twice: breaks.test.mjs')
    expect(lines).toContain('  a test fails: it is broken')
    expect(lines).toContain('failed twice: broken.test.mjs')
    expect(lines.join('\n')).not.toContain('twice: passes')
  })
})

describe('the end of a run', () => {
  it('tests that a program is missing for are counted in one line with its package', () => {
    const { title } = needProgram('nats-server')
    expect(title('a bus')).toMatch(/^a bus/)
    expect(
      describeSkipped([
        'a bus [needs nats-server] > a message arrives',
        'two gateways share a node [needs nats-server]',
        'a document is read [needs ../shared]',
        'a test was left out',
      ]),
    ).toEqual([
      'skipped: 1 test needs ../shared',
      'skipped: 2 tests need nats-server (apt-get install nats-server)',
      'skipped: 1 test needs nothing that its title names: a test was left out',
    ])
  })

  it('a program that .ci/programs does not list cannot be needed', () => {
    expect(() => needProgram('a-program-of-nobody')).toThrow('.ci/programs')
  })
})
