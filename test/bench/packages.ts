import { spawnSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { buildPackages } from '#packages/build-packages.ts'
import { findMachineNode } from '../support/machine-node.ts'
import { wordsOfVerify } from './verify-words.ts'

/**
 * `node test/bench/packages.ts`: how long the installed program takes from the shell, with the
 * machine's own Node.js, against a Node.js process that does nothing; and how long the checkout's
 * program takes with the checkout's Node.js. All in turns in one run.
 */
const ROUNDS = 21

const ROOT = join(import.meta.dirname, '../..')
const machine = findMachineNode()
if (machine === null) throw new Error('expected a Node.js with npm outside of this checkout')
const folder = mkdtempSync(join(tmpdir(), 'affidavit-bench-packages-'))
try {
  await buildPackages(ROOT, join(folder, 'built'))
  const installed = join(folder, 'installed')
  mkdirSync(installed)
  const { version } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'))
  const started = performance.now()
  const tarball = join(folder, `built/affidavit-${version}.tgz`)
  run('npm', 'install', '--prefer-offline', '--no-audit', '--no-fund', tarball)
  const installMs = performance.now() - started
  const affidavit = join(installed, 'node_modules/.bin/affidavit')
  const verify = wordsOfVerify(folder)
  const subjects = {
    'a process that does nothing': () => run('node', '--eval', '0'),
    'affidavit --version': () => run(affidavit, '--version'),
    'affidavit verify': () => run(affidavit, ...verify),
    'the same in the checkout': () =>
      run(process.execPath, join(ROOT, 'src/cli/main.ts'), ...verify),
  }
  const times = new Map<string, number[]>()
  for (let round = 0; round < ROUNDS; round++)
    for (const [name, subject] of Object.entries(subjects)) {
      const start = performance.now()
      subject()
      times.set(name, [...(times.get(name) ?? []), performance.now() - start])
    }
  console.log(`installed in ${Math.round(installMs)} ms; Node.js ${machine.version}, the checkout`)
  console.log(`with ${process.versions.node}; ${ROUNDS} rounds; ms: median (fastest to slowest)`)
  for (const [name, list] of times) {
    const sorted = list.toSorted((one, other) => one - other).map(Math.round)
    const [middle, low, high] = [sorted[ROUNDS >> 1], sorted[0], sorted.at(-1)]
    console.log(`  ${name.padEnd(30)} ${middle} (${low} to ${high})`)
  }

  function run(program: string, ...words: readonly string[]): void {
    const { status, stderr } = spawnSync(program, words, {
      cwd: installed,
      env: { PATH: machine?.path ?? '', HOME: process.env.HOME ?? '' },
      encoding: 'utf8',
    })
    if (status !== 0) throw new Error(`${program} ${words.join(' ')}: ${stderr}`)
  }
} finally {
  rmSync(folder, { recursive: true, force: true })
}
