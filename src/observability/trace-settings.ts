import { z } from 'zod'
import { confidential, textField, url } from '../runtime/fields.ts'

/**
 * Variables of the programs that can be traced: the gateway and a node agent. The names are
 * OpenTelemetry's.
 */
export const traceFields = {
  /**
   * OTLP collector that receives traces over HTTP, `https://collector:4318`; `/v1/traces` is added.
   * Default: tracing is off. The collector receives route, model and times of calls; never a key, a
   * prompt or an answer.
   */
  OTEL_EXPORTER_OTLP_ENDPOINT: url(['http', 'https']).optional(),
  /**
   * Headers for the collector, `name=value` separated by commas; values are percent-encoded.
   * Default: no headers.
   */
  OTEL_EXPORTER_OTLP_HEADERS: confidential(
    z.string().transform((list, context) => {
      const headers = parseHeaders(list)
      if (headers === null)
        context.addIssue({
          code: 'custom',
          message: 'expected name=value with commas between them',
        })
      return headers ?? {}
    }),
  ).default({}),
  /** The process's name in traces. Default: affidavit-gateway, affidavit-agent. */
  OTEL_SERVICE_NAME: textField.optional(),
  /**
   * Share of calls that are traced, 0 to 1. It applies to calls whose caller sent no decision in a
   * trace context. Default 1.
   */
  OTEL_TRACES_SAMPLER_ARG: z
    .string()
    .refine((ratio) => /^(0|1|0?\.\d{1,9}|[01]\.\d{1,9})$/.test(ratio) && Number(ratio) <= 1, {
      error: 'expected a number from 0 to 1',
    })
    .transform(Number)
    .default(1),
}

export type TraceConfig = {
  readonly url: string
  readonly headers: Readonly<Record<string, string>>
  readonly serviceName: string
  readonly ratio: number
}

/** Null: tracing is off. */
export function tracesOf(
  settings: z.output<z.ZodObject<typeof traceFields>>,
  serviceName: string,
): TraceConfig | null {
  const { OTEL_EXPORTER_OTLP_ENDPOINT: endpoint } = settings
  if (endpoint === undefined) return null
  return {
    url: `${endpoint.replace(/\/+$/, '')}/v1/traces`,
    headers: settings.OTEL_EXPORTER_OTLP_HEADERS,
    serviceName: settings.OTEL_SERVICE_NAME ?? serviceName,
    ratio: settings.OTEL_TRACES_SAMPLER_ARG,
  }
}

/** OpenTelemetry's form: W3C Baggage without properties. Null for any other text. */
function parseHeaders(list: string): Readonly<Record<string, string>> | null {
  const pairs = list
    .split(',')
    .map((pair) => /^\s*([!#$%&'*+.^_`|~0-9A-Za-z-]+)=([\x21-\x7e]*)\s*$/.exec(pair))
  const headers: Record<string, string> = {}
  for (const pair of pairs) {
    const [, name, value] = pair ?? []
    const decoded = value === undefined ? null : decodePercent(value)
    if (name === undefined || decoded === null) return null
    headers[name.toLowerCase()] = decoded
  }
  return headers
}

function decodePercent(value: string): string | null {
  try {
    const decoded = decodeURIComponent(value)
    return /^[\x20-\x7e]*$/.test(decoded) ? decoded : null
  } catch {
    return null
  }
}
