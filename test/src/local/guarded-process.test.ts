import { spawn } from 'node:child_process'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { afterEach, describe, expect, it } from 'vitest'
import { type GuardedProcess, spawnGuarded } from '#src/local/guarded-process.ts'
import { recordLog } from '../../support/chain.ts'
import { isAlive } from '../../support/is-alive.ts'
import { until } from '../../support/until.ts'

const running: GuardedProcess[] = []
afterEach(async () => {
  await Promise.all(running.splice(0).map((child) => child.stop()))
})

/** A child that runs a line of JavaScript. */
async function run(script: string): Promise<GuardedProcess> {
  const child = await spawnGuarded('child', [process.execPath, '-e', script], recordLog().log)
  running.push(child)
  return child
}

const FOREVER = 'setInterval(() => {}, 1000)'

describe('a guarded process', () => {
  it('a guarded process that ended by itself keeps its last words', async () => {
    const child = await run("console.log('out'); console.error('oh no'); process.exitCode = 3")
    await child.ended
    expect(child.said()).toContain('out')
    expect(child.said()).toContain('oh no')
  })

  it('a program that cannot be started is no guarded process', async () => {
    await expect(spawnGuarded('child', ['/no/such/program'], recordLog().log)).rejects.toThrow(
      'ENOENT',
    )
  })

  it('a guarded process ends when the process that started it is killed', async () => {
    const module = JSON.stringify(
      join(import.meta.dirname, '../../../src/local/guarded-process.ts'),
    )
    const script = `
      const { spawnGuarded } = await import(${module})
      const child = await spawnGuarded('child', [process.execPath, '-e', '${FOREVER}'], {})
      console.log(child.ready.pid)`
    const parent = spawn(process.execPath, ['--input-type=module', '-e', script], {
      stdio: ['ignore', 'pipe', 'inherit'],
    })
    const pid = await new Promise<number>((resolve) => {
      createInterface({ input: parent.stdout }).once('line', (line) => resolve(Number(line)))
    })
    expect(isAlive(pid)).toBe(true)
    parent.kill('SIGKILL')
    await until('the child is gone', () => !isAlive(pid), 5_000)
  })
})

describe('a guard', () => {
  it('a guard that is killed takes its child along while the parent lives', async () => {
    const script = `console.log(process.ppid); ${FOREVER}`
    const child = await run(script)
    await until('it tells its guard', () => child.said() !== '')
    process.kill(Number(child.said()), 'SIGKILL')
    await child.ended
    await until('the child is gone', () => !isAlive(child.ready.pid), 5_000)
  })
})
