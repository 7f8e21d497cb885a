import { judgePublished } from '../judge-published.ts'

judgePublished(/^bundle\/(answer|exchange|proof|provider-evidence|redacted|release)/, 30)
