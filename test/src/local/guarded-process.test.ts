import { spawn } from 'node:child_process'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { afterEach, describe, expect, it } from 'vitest'
import { type GuardedProcess, spawnGuarded } from '../../../src/local/guarded-process.ts'
import { isAlive } from '../../support/is-alive.ts'
import { until } from '../../support/until.ts'

const running: GuardedProcess[] = []
afterEach(async () => {
  await Promise.all(running.splice(0).map((child) => child.stop()))
})

/** A child that runs a line of JavaScript. */
async function run(script: string, graceMs = 0): Promise<GuardedProcess> {
  const child = await spawnGuarded({
    command: process.execPath,
    arguments: ['-e', script],
    environment: {},
    output: 'capture',
    graceMs,
  })
  running.push(child)
  return child
}

const FOREVER = 'setInterval(() => {}, 1000)'

describe('a guarded process', () => {
  it('a guarded process runs until it is stopped', async () => {
    const child = await run(FOREVER)
    expect(isAlive(child.pid)).toBe(true)
    await child.stop()
    expect(isAlive(child.pid)).toBe(false)
  })

  it('a guarded process tells how it ended by itself, and its last words', async () => {
    const child = await run("console.log('out'); console.error('oh no'); process.exitCode = 3")
    expect(await child.exited).toEqual({ code: 3, signal: null })
    expect(child.outputTail()).toContain('out')
    expect(child.outputTail()).toContain('oh no')
  })

  it('a guarded process keeps only the end of what a process says', async () => {
    const child = await run("process.stdout.write('x'.repeat(1e6) + 'the end')")
    await child.exited
    await until('the output is read', () => child.outputTail().endsWith('the end'))
    expect(child.outputTail().length).toBeLessThanOrEqual(4096)
  })

  it('a guarded process may end in peace within its grace', async () => {
    const child = await run(
      `process.on('SIGTERM', () => process.exit(7)); console.log('on'); ${FOREVER}`,
      10_000,
    )
    await until('it listens', () => child.outputTail() === 'on')
    await child.stop()
    expect(await child.exited).toEqual({ code: 7, signal: null })
  })

  it('a guarded process is killed when its grace is over', async () => {
    const child = await run(`process.on('SIGTERM', () => {}); console.log('on'); ${FOREVER}`, 100)
    await until('it listens', () => child.outputTail() === 'on')
    await child.stop()
    expect(isAlive(child.pid)).toBe(false)
  })

  it('a program that cannot be started is no guarded process', async () => {
    const spec = {
      command: '/no/such/program',
      arguments: [],
      environment: {},
      output: 'capture',
      graceMs: 0,
    } as const
    await expect(spawnGuarded(spec)).rejects.toThrow('ENOENT')
  })

  it('a guarded process ends when the process that started it is killed', async () => {
    const module = JSON.stringify(
      join(import.meta.dirname, '../../../src/local/guarded-process.ts'),
    )
    const script = `
      const { spawnGuarded } = await import(${module})
      const child = await spawnGuarded({ command: process.execPath, arguments: ['-e', '${FOREVER}'], environment: {}, output: 'inherit', graceMs: 0 })
      console.log(child.pid)`
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
    await until('it tells its guard', () => child.outputTail() !== '')
    process.kill(Number(child.outputTail()), 'SIGKILL')
    expect((await child.exited).signal).toBe('SIGKILL')
    await until('the child is gone', () => !isAlive(child.pid), 5_000)
  })

  it('a guard does not run without a parent to watch', async () => {
    const guard = spawn(process.execPath, [
      join(import.meta.dirname, '../../../src/local/guard.ts'),
      '0',
      'true',
    ])
    expect(await new Promise((resolve) => guard.once('exit', resolve))).toBe(2)
  })
})
