import { openProcessLogger } from '../../src/observability/logger.ts'

/**
 * A process that logs the lines 1 to `count`, then says on its channel how late its turns came and
 * what became of the lines. It logs one more line when it is told to, and two before it exits.
 */
const count = Number(process.argv[2])
const log = await openProcessLogger('info')
const startedAt = performance.now()
for (let line = 1; line <= count; line++) log.info({ line, filler: 'x'.repeat(900) }, 'line')
setTimeout(() => process.send?.({ tookMs: performance.now() - startedAt, ...log.lines() }), 1)
process.on('message', (what) => {
  if (what === 'log') {
    log.info({}, 'once more')
    process.send?.(log.lines())
    return
  }
  log.info({}, 'last but one')
  log.error({}, 'last')
  process.exit(3)
})
