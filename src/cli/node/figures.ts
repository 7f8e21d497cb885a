import { timeCell } from '../printable.ts'

/** `84.5 tokens/s`. */
export function speedText(tokensPerSecond: number): string {
  return `${decimals(tokensPerSecond, tokensPerSecond < 100 ? 1 : 0)} tokens/s`
}

/** `1 request` or `2,000 requests`. `noun` is the singular. */
export function countText(count: number, noun: string): string {
  return `${decimals(count, 0)} ${noun}${count === 1 ? '' : 's'}`
}

/** `24 GiB`. */
export function memoryText(mebibytes: number): string {
  return `${decimals(mebibytes / 1024, 1)} GiB`
}

/** `412 ms` or `1.2 s`. */
export function millisecondsText(ms: number): string {
  return ms < 1_000 ? `${decimals(ms, 0)} ms` : `${decimals(ms / 1000, 1)} s`
}

/** `1 h 2 min`. Only the two largest units are written. */
export function lengthText(seconds: number): string {
  const whole = Math.floor(seconds)
  const parts = [
    [Math.floor(whole / 86_400), 'd'],
    [Math.floor(whole / 3600) % 24, 'h'],
    [Math.floor(whole / 60) % 60, 'min'],
    [whole % 60, 's'],
  ] as const
  const shown = parts.filter(([count]) => count > 0).map(([count, unit]) => `${count} ${unit}`)
  return shown.length === 0 ? '0 s' : shown.slice(0, 2).join(' ')
}

/** Latest Unix second that a Date can hold. */
const TIME_MAX = 8_640_000_000_000

/** Day and time in UTC. A dash for 0. */
export function timeText(seconds: number): string {
  if (!(seconds > 0)) return '-'
  if (seconds > TIME_MAX) return String(seconds)
  return `${timeCell(seconds)} UTC`
}

/** Commas separate thousands. */
export function decimals(value: number, maximumFractionDigits: number): string {
  return value.toLocaleString('en', { maximumFractionDigits })
}
