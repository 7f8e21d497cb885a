import { openProcessLogger } from '#src/observability/logger.ts'

/**
 * A process that logs the lines 1 to `count`, then reports on its channel how late its turns came
 * and what happened to the lines. At the message `log` it logs one more line; at any other message
 * it logs two lines and exits.
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
