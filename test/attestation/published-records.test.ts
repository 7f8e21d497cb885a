import { judgePublished } from './judge-published.ts'

judgePublished(/^(record|answer)\//, 90)
