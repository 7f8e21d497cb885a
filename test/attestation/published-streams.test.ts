import { judgePublished } from './judge-published.ts'

// Those of stream/published are in streams/kept.json, which verify-stream.test.ts reads.
judgePublished(/^stream\/(?!published)/, 90)
